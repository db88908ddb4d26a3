// Qwen3_5ForCausalLM (Qwen3.5, 3.6; and the language model in Qwen3_5ForConditionalGeneration),
// without experts: Qwen3's layout with norms of 1 + w, attention whose output has a gate, and in
// most layers a gated DeltaNet (arXiv:2412.06464) in its place.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kDefaults{.vocab_size = 248320,
                                   .hidden_size = 4096,
                                   .intermediate_size = 12288,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 16,
                                   .num_key_value_heads = 4,
                                   .head_dim = 256,
                                   .max_position_embeddings = 32768,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000,
                                   .part_key = "partial_rotary_factor",
                                   .part = 0.25};

// q_proj has the rows of each head's queries, then those of its gate.
void add_gate(const JsonFields& c, AttentionSpec& attention) {
  const int64_t d = attention.head_dim;
  std::vector<PartSpec>& parts = attention.qkv.parts;
  parts.push_back({parts.front().source, {.first = d, .group = d, .stride = 2 * d}});
  parts.front().view = {.group = d, .stride = 2 * d};
  attention.output_gate = true;
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
}

Dimension read_state_heads(const JsonFields& c, const char* heads, int64_t absent, int64_t dim) {
  const int64_t count = read_size(c, heads, absent);
  if (count * dim > kMaxWidth)
    fail(ErrorKind::refused, "{}: {} heads of {} are absurd", c.where(), count, dim);
  return {.size = count * dim, .unit = dim};
}

StateMixerSpec delta_mixer(const JsonFields& c, const std::string& name, const NormParams& norm) {
  const int64_t key_dim = read_size(c, "linear_key_head_dim", 128);
  const int64_t value_dim = read_size(c, "linear_value_head_dim", 128);
  const Dimension keys = read_state_heads(c, "linear_num_key_heads", 16, key_dim);
  const Dimension values = read_state_heads(c, "linear_num_value_heads", 32, value_dim);
  if (values.units() % keys.units() != 0)
    fail(ErrorKind::refused,
         "{}: linear_num_key_heads ({}) does not divide linear_num_value_heads ({})", c.where(),
         keys.units(), values.units());
  c.refuse_null({"linear_conv_kernel_dim"});
  const std::string qkv = name + ".in_proj_qkv";
  return {.name = name,
          .kind = StateKind::delta,
          .heads = values,
          .key_heads = keys,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .input = {.name = name + ".in_proj",
                    .parts = {{qkv},
                              {qkv, {.first = keys.size}},
                              {qkv, {.first = 2 * keys.size}},
                              {name + ".in_proj_z"},
                              {name + ".in_proj_a"},
                              {name + ".in_proj_b"}}},
          .convolution = {.name = name + ".conv1d",
                          .width = c.integer_or("linear_conv_kernel_dim", 2, kMostConvWidth, 4),
                          .silu = true,
                          .first = {0, keys.size, 2 * keys.size}},
          .log_rates = name + ".A_log",
          .step_bias = name + ".dt_bias",
          .norm = {name + ".norm", norm},
          .output = one_linear(name + ".out_proj", false)};
}

// The kind of each layer: 0 where it attends.
std::vector<size_t> layer_kinds(const JsonFields& c, int64_t layers) {
  std::vector<size_t> kinds = read_layer_types(c, layers, {"full_attention", "linear_attention"});
  if (!kinds.empty()) return kinds;
  const int64_t interval = read_size(c, "full_attention_interval", 4, kMaxLayers);
  for (int64_t l = 1; l <= layers; ++l) kinds.push_back(l % interval == 0 ? 0 : 1);
  return kinds;
}

DecoderSpec parse_qwen3_5(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kDefaults);
  LayerSpec& layer = spec.kinds.front();
  if (layer.mlps.front().mlp.activation != Activation::silu)
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  AttentionSpec& attention = layer.mixers.front().attention;
  add_gate(c, attention);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  const NormParams plain = spec.norm.params;
  each_norm(spec, [](NormSpec& norm) { norm.params.weight_offset = 1; });
  LayerSpec linear = layer;
  linear.mixers.front().state = delta_mixer(c, layer.name + ".linear_attn", plain);
  spec.kinds.push_back(std::move(linear));
  spec.layers = layer_kinds(c, std::ssize(spec.layers));
  spec.prefixes = {"model.", "model.language_model.", "language_model.model."};
  return spec;
}

}  // namespace

std::vector<Family> qwen3_5_families() {
  return {{"Qwen3_5ForCausalLM",
           "qwen3_5_text",
           parse_qwen3_5,
           {"mtp.*", "*.mtp.*", "model.visual.*"},
           {"qwen3_5"}}};
}

}  // namespace sluice
