// MambaForCausalLM, FalconMambaForCausalLM (the same with norms of steps, B and C), and the mixer
// for others.
#include "src/models/families/mamba.h"

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr MambaKeys kMambaKeys{.state = "state_size",
                               .width = "conv_kernel",
                               .expand = "expand",
                               .inner = "intermediate_size",
                               .step_rank = "time_step_rank",
                               .conv_bias = "use_conv_bias",
                               .bias = "use_bias"};

int64_t read_channels(const JsonFields& c, int64_t hidden_size, const MambaKeys& keys) {
  const bool given = keys.inner != nullptr && (c.has(keys.inner) || c.is_null(keys.inner));
  if (given) return read_size(c, keys.inner, 0);
  const int64_t channels = read_size(c, keys.expand, 2, 64) * hidden_size;
  if (channels > kMaxWidth)
    fail(ErrorKind::refused, "{}: {} times {} channels are absurd", c.where(), keys.expand,
         hidden_size);
  return channels;
}

int64_t read_step_rank(const JsonFields& c, int64_t hidden_size, const MambaKeys& keys) {
  c.refuse_null({keys.step_rank});
  const bool automatic = !c.has(keys.step_rank) ||
                         (c.raw(keys.step_rank).is_string() && c.string(keys.step_rank) == "auto");
  return automatic ? ceil_div(hidden_size, int64_t{16}) : read_size(c, keys.step_rank, 0);
}

DecoderSpec parse_mamba(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "hidden_size", "num_hidden_layers", "state_size"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 50280, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 768);
  spec.max_positions = kMaxPositions;
  spec.embedding = "backbone.embeddings";
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5)};
  const std::string layer = "backbone.layers.{}";
  MixerBranch mixer{.norm = {layer + ".norm", norm}};
  mixer.mixer = mamba_mixer(c, layer + ".mixer", spec.hidden_size, kMambaKeys);
  spec.kinds = {{.name = layer, .mixers = {std::move(mixer)}, .mlps = {}}};
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_hidden_layers", 32, kMaxLayers)), 0);
  spec.norm = {"backbone.norm_f", norm};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

DecoderSpec parse_falcon_mamba(const JsonFields& c) {
  DecoderSpec spec = parse_mamba(c);
  MambaSpec& mixer = std::get<MambaSpec>(spec.kinds.front().mixers.front().mixer);
  const NormParams params{.eps = read_eps(c, "mixer_rms_eps", 1e-6)};
  for (const char* name : {".dt_layernorm", ".b_layernorm", ".c_layernorm"})
    mixer.norms.push_back({.name = mixer.name + name, .params = params, .weight = false});
  return spec;
}

}  // namespace

MambaSpec mamba_mixer(const JsonFields& c, const std::string& name, int64_t hidden_size,
                      const MambaKeys& keys) {
  const int64_t channels = read_channels(c, hidden_size, keys);
  const int64_t state = read_size(c, keys.state, 16, kMostSelectiveKeys);
  const int64_t rank = read_step_rank(c, hidden_size, keys);
  if (read_activation(c, "hidden_act", "silu") != Activation::silu)
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  c.refuse_null({keys.width});
  const int64_t width = c.integer_or(keys.width, 2, kMostConvWidth, 4);
  const bool conv_bias = read_boolean(c, keys.conv_bias, true);
  const bool bias = read_boolean(c, keys.bias, false);
  const std::string input = name + ".in_proj", of_values = name + ".x_proj";
  return {.name = name,
          .channels = {.size = channels},
          .key_dim = state,
          .step_rank = rank,
          .input = {.name = input, .parts = {{input}, {input, {.first = channels}}}, .bias = bias},
          .convolution = {.name = name + ".conv1d",
                          .width = width,
                          .bias = conv_bias,
                          .silu = true,
                          .first = {0}},
          .scan_inputs = {.name = of_values,
                          .parts = {{of_values},
                                    {of_values, {.first = rank}},
                                    {of_values, {.first = rank + state}}}},
          .steps = one_linear(name + ".dt_proj", true),
          .log_rates = name + ".A_log",
          .skip = name + ".D",
          .output = one_linear(name + ".out_proj", bias)};
}

std::vector<Family> mamba_families() {
  return {{"MambaForCausalLM", "mamba", parse_mamba, {}},
          {"FalconMambaForCausalLM", "falcon_mamba", parse_falcon_mamba, {}}};
}

}  // namespace sluice
