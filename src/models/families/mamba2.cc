// Mamba2ForCausalLM, and the mixer for others.
#include "src/models/families/mamba2.h"

#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr Mamba2Keys kMamba2Keys{.heads = "num_heads",
                                 .head_dim = "head_dim",
                                 .absent_head_dim = 64,
                                 .groups = "n_groups",
                                 .absent_groups = 8,
                                 .state = "state_size",
                                 .absent_state = 128,
                                 .width = "conv_kernel",
                                 .expand = "expand",
                                 .conv_bias = "use_conv_bias",
                                 .input_bias = "use_bias",
                                 .output_bias = "use_bias"};

// A number, or infinity in one of the ways in which it is written.
double limit_of(const JsonFields& c, const Json& value) {
  constexpr const char* kFloat = "__float__";
  const bool infinite = value.is_object() && value.contains(kFloat) && value[kFloat] == "Infinity";
  const double limit = infinite ? INFINITY : value.is_number() ? value.get<double>() : NAN;
  if (!(limit >= 0))
    fail(ErrorKind::refused, "{}: time_step_limit must be two numbers, not below 0", c.where());
  return limit;
}

void read_limits(const JsonFields& c, Mamba2Spec& spec) {
  if (!c.has("time_step_limit")) return;
  const Json& limits = c.raw("time_step_limit");
  if (!limits.is_array() || limits.size() != 2)
    fail(ErrorKind::refused, "{}: time_step_limit must be two numbers", c.where());
  spec.least_step = static_cast<float>(limit_of(c, limits[0]));
  spec.most_step = static_cast<float>(limit_of(c, limits[1]));
  if (!(spec.least_step <= spec.most_step))
    fail(ErrorKind::refused, "{}: time_step_limit must rise", c.where());
}

int64_t read_head_dim(const JsonFields& c, int64_t hidden_size, int64_t heads,
                      const Mamba2Keys& keys) {
  const bool automatic = c.has(keys.head_dim)
                             ? c.raw(keys.head_dim).is_string() && c.string(keys.head_dim) == "auto"
                             : !keys.absent_head_dim;
  if (!automatic) return read_size(c, keys.head_dim, keys.absent_head_dim.value_or(0));
  int64_t inner = read_size(c, keys.expand, 2, 64) * hidden_size;
  if (keys.inner != nullptr && !c.is_null(keys.inner))
    inner = read_size(c, keys.inner, keys.absent_inner);
  if (inner % heads != 0)
    fail(ErrorKind::refused, "{}: {} ({}) does not divide {}", c.where(), keys.heads, heads, inner);
  return inner / heads;
}

DecoderSpec parse_mamba2(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "hidden_size", "num_hidden_layers", "num_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 32768, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 4096);
  spec.max_positions = kMaxPositions;
  spec.embedding = "backbone.embeddings";
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5)};
  const std::string layer = "backbone.layers.{}";
  MixerBranch mixer{.norm = {layer + ".norm", norm}};
  mixer.mixer = mamba2_mixer(c, layer + ".mixer", spec.hidden_size, norm, kMamba2Keys);
  spec.kinds = {{.name = layer, .mixers = {std::move(mixer)}, .mlps = {}}};
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_hidden_layers", 64, kMaxLayers)), 0);
  spec.norm = {"backbone.norm_f", norm};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", false);
  return spec;
}

}  // namespace

Mamba2Spec mamba2_mixer(const JsonFields& c, const std::string& name, int64_t hidden_size,
                        const NormParams& norm, const Mamba2Keys& keys) {
  const int64_t heads = read_size(c, keys.heads, keys.absent_heads);
  const int64_t head_dim = read_head_dim(c, hidden_size, heads, keys);
  const int64_t groups = read_size(c, keys.groups, keys.absent_groups);
  const int64_t state = read_size(c, keys.state, keys.absent_state);
  const int64_t inner = heads * head_dim, keys_size = groups * state;
  if (inner > kMaxWidth || keys_size > kMaxWidth || heads % groups != 0)
    fail(ErrorKind::refused, "{}: {} ({}) must divide {} ({}), of {} and {} elements", c.where(),
         keys.groups, groups, keys.heads, heads, state, head_dim);
  if (read_activation(c, keys.activation, "silu") != Activation::silu)
    fail(ErrorKind::refused, "{}: {} must be silu", c.where(), keys.activation);
  c.refuse_null({keys.width});
  const int64_t width = c.integer_or(keys.width, 2, kMostConvWidth, 4);
  const bool conv_bias = read_flag(c, keys.conv_bias, true);
  const bool input_bias = read_flag(c, keys.input_bias, false);
  const bool output_bias = read_flag(c, keys.output_bias, false);
  const std::string input = name + ".in_proj";
  Mamba2Spec spec{.name = name,
                  .heads = {.size = inner, .unit = head_dim},
                  .key_heads = {.size = keys_size, .unit = state},
                  .key_dim = state,
                  .value_dim = head_dim,
                  // Stored are the gate, x, B, C and the steps.
                  .input = {.name = input,
                            .parts = {{input, {.first = 2 * inner + keys_size}},
                                      {input, {.first = 2 * inner}},
                                      {input, {.first = inner}},
                                      {input},
                                      {input, {.first = 2 * inner + 2 * keys_size}}},
                            .bias = input_bias},
                  .convolution = {.name = name + ".conv1d",
                                  .width = width,
                                  .bias = conv_bias,
                                  .silu = true,
                                  .first = {inner + keys_size, inner, 0}},
                  .log_rates = name + ".A_log",
                  .step_bias = name + ".dt_bias",
                  .skip = name + ".D",
                  .norm = {name + ".norm", norm},
                  .norm_parts = groups,
                  .gate_first = true,
                  .output = one_linear(name + ".out_proj", output_bias)};
  read_limits(c, spec);
  return spec;
}

std::vector<Family> mamba2_families() {
  return {{"Mamba2ForCausalLM", "mamba2", parse_mamba2, {}}};
}

}  // namespace sluice
