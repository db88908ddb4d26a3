// Qwen3_5ForCausalLM (Qwen3.5, 3.6; and the language model in Qwen3_5ForConditionalGeneration):
// Qwen3's layout with norms of 1 + w, attention whose output has a gate, and in most layers a gated
// DeltaNet (arXiv:2412.06464) in its place. Qwen3_5MoeForCausalLM: the same with experts beside a
// shared one. Qwen3NextForCausalLM: the same again, with DeltaNet's inputs in two tensors.
#include "src/models/families/qwen3_5.h"

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kQwen35Defaults{.vocab_size = 248320,
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

constexpr LayoutDefaults kQwen35Moe = [] {
  LayoutDefaults defaults = kQwen35Defaults;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 0;
  defaults.num_hidden_layers = 40;
  defaults.num_key_value_heads = 2;
  return defaults;
}();
constexpr LayoutDefaults kNext = [] {
  LayoutDefaults defaults = kQwen35Moe;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 5632;
  defaults.num_hidden_layers = 48;
  return defaults;
}();

// q_proj has the rows of each head's queries, then those of its gate.
void add_gate(const JsonFields& c, AttentionSpec& attention) {
  const int64_t d = attention.head_dim;
  std::vector<PartSpec>& parts = attention.qkv.parts;
  parts.push_back({parts.front().source, {.first = d, .group = d, .stride = 2 * d}});
  parts.front().view = {.group = d, .stride = 2 * d};
  attention.output_gate = Activation::sigmoid;
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
}

Dimension read_state_heads(const JsonFields& c, const char* heads, int64_t absent, int64_t dim) {
  const int64_t count = read_size(c, heads, absent);
  if (count * dim > kMaxWidth)
    fail(ErrorKind::refused, "{}: {} heads of {} are absurd", c.where(), count, dim);
  return {.size = count * dim, .unit = dim};
}

// Qwen3-Next has queries, keys, values and the gate of a key head and its value heads, then those
// of the next, in one tensor, and so steps and decays in another.
void interleave_inputs(GatedDeltaNetSpec& mixer) {
  const int64_t keys = mixer.key_dim, of_key = mixer.heads.units() / mixer.key_heads.units();
  const int64_t values = of_key * mixer.value_dim, stride = 2 * (keys + values);
  const std::string qkvz = mixer.name + ".in_proj_qkvz", ba = mixer.name + ".in_proj_ba";
  mixer.heads.multiple_of = values;  // those of a key head stay together
  mixer.input.parts = {{qkvz, {.group = keys, .stride = stride}},
                       {qkvz, {.first = keys, .group = keys, .stride = stride}},
                       {qkvz, {.first = 2 * keys, .group = values, .stride = stride}},
                       {qkvz, {.first = 2 * keys + values, .group = values, .stride = stride}},
                       {ba, {.first = of_key, .group = of_key, .stride = 2 * of_key}},
                       {ba, {.group = of_key, .stride = 2 * of_key}}};
}

// The kind of each layer: 0 where it attends.
std::vector<size_t> layer_kinds(const JsonFields& c, int64_t layers) {
  std::vector<size_t> kinds = read_layer_types(c, layers, {"full_attention", "linear_attention"});
  if (!kinds.empty()) return kinds;
  const int64_t interval = read_size(c, "full_attention_interval", 4, kMaxLayers);
  for (int64_t l = 1; l <= layers; ++l) kinds.push_back(l % interval == 0 ? 0 : 1);
  return kinds;
}

DecoderSpec qwen3_5_layout(const JsonFields& c, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec& layer = spec.kinds.front();
  if (layer.mlps.front().mlp.activation != Activation::silu)
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  AttentionSpec& attention = layer.mixers.front().attention();
  add_gate(c, attention);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  const NormParams plain = spec.norm.params;
  each_norm(spec, [](NormSpec& norm) { norm.params.weight_offset = 1; });
  LayerSpec linear = layer;
  linear.mixers.front().mixer = qwen_delta_net(c, {}, layer.name + ".linear_attn", plain);
  spec.kinds.push_back(std::move(linear));
  spec.layers = layer_kinds(c, std::ssize(spec.layers));
  spec.prefixes = {"model.", "model.language_model.", "language_model.model.", "language_model."};
  return spec;
}

DecoderSpec parse_qwen3_5(const JsonFields& c) { return qwen3_5_layout(c, kQwen35Defaults); }

DecoderSpec parse_qwen3_5_moe(const JsonFields& c) {
  DecoderSpec spec = qwen3_5_layout(c, kQwen35Moe);
  const ExpertsSpec experts = qwen_experts(c, {.absent_count = 256, .absent_top_k = 8},
                                           spec.kinds.front().mlps.front().mlp);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

DecoderSpec parse_next(const JsonFields& c) {
  DecoderSpec spec = qwen3_5_layout(c, kNext);
  ExpertsSpec experts = qwen_experts(c, {.absent_count = 512, .absent_top_k = 10},
                                     spec.kinds.front().mlps.front().mlp);
  experts.choice.normalized = read_boolean(c, "norm_topk_prob", true);
  interleave_inputs(std::get<GatedDeltaNetSpec>(spec.kinds.back().mixers.front().mixer));
  use_experts(spec, experts, read_sparse_layers(c, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

GatedDeltaNetSpec qwen_delta_net(const JsonFields& c, const DeltaNetDefaults& defaults,
                                 const std::string& name, const NormParams& norm) {
  const int64_t key_dim = read_size(c, "linear_key_head_dim", 128);
  const int64_t value_dim = read_size(c, "linear_value_head_dim", 128);
  const Dimension keys = read_state_heads(c, "linear_num_key_heads", defaults.key_heads, key_dim);
  const Dimension values =
      read_state_heads(c, "linear_num_value_heads", defaults.value_heads, value_dim);
  if (values.units() % keys.units() != 0)
    fail(ErrorKind::refused,
         "{}: linear_num_key_heads ({}) does not divide linear_num_value_heads ({})", c.where(),
         keys.units(), values.units());
  c.refuse_null({"linear_conv_kernel_dim"});
  const int64_t width = c.integer_or("linear_conv_kernel_dim", 2, kMostConvWidth, 4);
  const std::string qkv = name + ".in_proj_qkv";
  return {.name = name,
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
                          .width = width,
                          .silu = true,
                          .first = {0, keys.size, 2 * keys.size}},
          .log_rates = name + ".A_log",
          .step_bias = name + ".dt_bias",
          .norm = {name + ".norm", norm},
          .output = one_linear(name + ".out_proj", false)};
}

ExpertsSpec qwen_experts(const JsonFields& c, const ExpertKeys& keys, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, keys);
  experts.choice.normalized = true;
  name_experts(experts, mlp, read_size(c, "moe_intermediate_size", 512, 4 * kMaxWidth));
  experts.stacked_gate_up = mlp.name + ".experts.gate_up_proj";
  experts.stacked_down = mlp.name + ".experts.down_proj";
  experts.shared = mlp_like(mlp, mlp.name + ".shared_expert",
                            read_size(c, "shared_expert_intermediate_size", 512, 4 * kMaxWidth));
  experts.shared_gate = mlp.name + ".shared_expert_gate";
  return experts;
}

std::vector<Family> qwen3_5_families() {
  return {{"Qwen3_5ForCausalLM",
           "qwen3_5_text",
           parse_qwen3_5,
           {"mtp.*", "*.mtp.*", "model.visual.*"},
           {"qwen3_5"}},
          {"Qwen3_5MoeForCausalLM",
           "qwen3_5_moe_text",
           parse_qwen3_5_moe,
           {"mtp.*", "*.mtp.*", "model.visual.*"},
           {"qwen3_5_moe"}},
          {"Qwen3NextForCausalLM", "qwen3_next", parse_next, {"mtp.*"}}};
}

}  // namespace sluice
