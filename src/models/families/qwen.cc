// Qwen2ForCausalLM (Qwen2, Qwen2.5) and Qwen3ForCausalLM: Llama's layout; biases on q, k and v in
// the one, norms of each head's q and k in the other, and a window in the upper layers of both
// where config.json asks for it. Qwen2MoeForCausalLM and Qwen3MoeForCausalLM: the same with
// experts, in the first beside a shared one. The language models of Qwen2-VL, Qwen2.5-VL, Qwen3-VL
// and its one with experts: the same, with the defaults of their own config classes.
// MellumForCausalLM (Mellum 2): Qwen3's with experts, and windows whose layers have a rope of their
// own. FlintForCausalLM (Flint): Qwen3's with experts beside a shared one, sinks of the heads, and
// windows in most layers, which alone rotate.
#include <algorithm>

#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kQwen2{.vocab_size = 151936,
                                .hidden_size = 4096,
                                .intermediate_size = 22016,
                                .num_hidden_layers = 32,
                                .num_attention_heads = 32,
                                .num_key_value_heads = 32,
                                .max_position_embeddings = 32768,
                                .rms_norm_eps = 1e-6,
                                .rope_theta = 10000};
constexpr LayoutDefaults kQwen2Vl = [] {
  LayoutDefaults defaults = kQwen2;
  defaults.vocab_size = 152064;
  defaults.hidden_size = 8192;
  defaults.intermediate_size = 29568;
  defaults.num_hidden_layers = 80;
  defaults.num_attention_heads = 64;
  defaults.num_key_value_heads = 8;
  defaults.rms_norm_eps = 1e-5;
  defaults.rope_theta = 1000000;
  return defaults;
}();
constexpr LayoutDefaults kQwen3 = [] {
  LayoutDefaults defaults = kQwen2;
  defaults.head_dim = 128;
  return defaults;
}();
constexpr LayoutDefaults kQwen3Vl = [] {
  LayoutDefaults defaults = kQwen3;
  defaults.max_position_embeddings = 128000;
  defaults.rope_theta = 500000;
  return defaults;
}();

// The classes with experts have smaller layers, but for Qwen3's own.
constexpr LayoutDefaults with_experts(LayoutDefaults defaults) {
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.num_hidden_layers = 24;
  defaults.num_attention_heads = 16;
  defaults.num_key_value_heads = 16;
  return defaults;
}
constexpr LayoutDefaults kQwen2Moe = with_experts(kQwen2);
constexpr LayoutDefaults kQwen3VlMoe = with_experts(kQwen3Vl);
constexpr LayoutDefaults kQwen3Moe = [] {
  LayoutDefaults defaults = kQwen2Moe;
  defaults.intermediate_size = 6144;
  defaults.num_attention_heads = 32;
  defaults.num_key_value_heads = 4;
  return defaults;
}();

// The language model of one that sees: it has a config class of its own.
bool is_of_vl(const JsonFields& config) {
  return config.string_or("model_type", "").find("_vl") != std::string::npos;
}

// `full`: layers below those with a window.
std::vector<int64_t> windows(const JsonFields& config, int64_t layers, int64_t full) {
  if (!read_boolean(config, "use_sliding_window", false))
    return std::vector<int64_t>(static_cast<size_t>(layers), 0);
  return read_upper_windows(config, 4096, layers, full);
}

DecoderSpec parse_qwen2(const JsonFields& config) {
  const bool vl = is_of_vl(config);
  DecoderSpec spec = common_layout(config, vl ? kQwen2Vl : kQwen2);
  spec.kinds.front().mixers.front().attention().qkv.bias = true;
  use_windows(spec, windows(config, std::ssize(spec.layers), vl ? 80 : 28));
  return spec;
}

DecoderSpec qwen3_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  return spec;
}

// It has no windows. Checkpoints of Cosmos have other names of attention.
DecoderSpec parse_qwen3_vl(const JsonFields& config) {
  DecoderSpec spec = qwen3_layout(config, kQwen3Vl);
  const std::string attention = spec.kinds.front().mixers.front().attention().name;
  for (const auto& [name, other] : {std::pair{".q_proj", ".to_q"},
                                    {".k_proj", ".to_k"},
                                    {".v_proj", ".to_v"},
                                    {".o_proj", ".to_out"},
                                    {".q_norm", ".norm_q"},
                                    {".k_norm", ".norm_k"}})
    spec.other_names.push_back({attention + name, attention + other});
  return spec;
}

DecoderSpec parse_qwen3(const JsonFields& config) {
  if (is_of_vl(config)) return parse_qwen3_vl(config);
  DecoderSpec spec = qwen3_layout(config, kQwen3);
  use_windows(spec, windows(config, std::ssize(spec.layers), 28));
  return spec;
}

ExpertsSpec moe_experts(const JsonFields& config, const ExpertKeys& keys, int64_t absent_width,
                        const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(config, keys);
  experts.choice.normalized = read_boolean(config, "norm_topk_prob", false);
  name_experts(experts, mlp,
               read_size(config, "moe_intermediate_size", absent_width, 4 * kMaxWidth));
  return experts;
}

DecoderSpec parse_qwen2_moe(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kQwen2Moe);
  const auto layers = std::ssize(spec.layers);
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().attention().qkv.bias = read_boolean(config, "qkv_bias", true);
  const MlpSpec& mlp = layer.mlps.front().mlp;
  ExpertsSpec experts = moe_experts(config, {.absent_count = 60, .absent_top_k = 4}, 1408, mlp);
  experts.shared =
      mlp_like(mlp, mlp.name + ".shared_expert",
               read_size(config, "shared_expert_intermediate_size", 5632, 4 * kMaxWidth));
  experts.shared_gate = mlp.name + ".shared_expert_gate";
  use_windows(spec, windows(config, layers, 28));
  use_experts(spec, experts, read_sparse_layers(config, layers));
  return spec;
}

// No windows, and the weights of a token's experts always add up to 1.
DecoderSpec parse_qwen3_vl_moe(const JsonFields& config) {
  DecoderSpec spec = qwen3_layout(config, kQwen3VlMoe);
  ExpertsSpec experts = moe_experts(config, {.absent_count = 60, .absent_top_k = 4}, 1408,
                                    spec.kinds.front().mlps.front().mlp);
  experts.choice.normalized = true;
  experts.stacked_gate_up = experts.name + ".experts.gate_up_proj";
  experts.stacked_down = experts.name + ".experts.down_proj";
  use_experts(spec, experts, read_sparse_layers(config, std::ssize(spec.layers)));
  return spec;
}

// A window, where config.json asks for one, is of all layers.
DecoderSpec parse_qwen3_moe(const JsonFields& config) {
  if (is_of_vl(config)) return parse_qwen3_vl_moe(config);
  DecoderSpec spec = qwen3_layout(config, kQwen3Moe);
  const auto layers = std::ssize(spec.layers);
  const ExpertsSpec experts = moe_experts(config, {.absent_count = 128, .absent_top_k = 8}, 768,
                                          spec.kinds.front().mlps.front().mlp);
  if (read_boolean(config, "use_sliding_window", false))
    use_windows(spec, read_windows(config, 4096, layers));
  use_experts(spec, experts, read_sparse_layers(config, layers));
  return spec;
}

constexpr LayoutDefaults kMellum = [] {
  LayoutDefaults defaults = kQwen3Moe;
  defaults.vocab_size = 98304;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 7168;
  defaults.num_hidden_layers = 28;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 131072;
  defaults.rope_theta = 500000;
  defaults.rope_layers = "full_attention";
  defaults.rope_of_class = true;
  return defaults;
}();

DecoderSpec parse_mellum(const JsonFields& config) {
  DecoderSpec spec = qwen3_layout(config, kMellum);
  const auto layers = std::ssize(spec.layers);
  const LayerSpec& layer = spec.kinds.front();
  ExpertsSpec experts =
      moe_experts(config, {.absent_count = 64, .absent_top_k = 8}, 896, layer.mlps.front().mlp);
  experts.choice.normalized = read_boolean(config, "norm_topk_prob", true);
  std::vector<bool> sparse = sparse_from(0, layers);
  const auto kinds = read_layer_types(config, layers, {"dense", "sparse"}, "mlp_layer_types");
  for (size_t l = 0; l < kinds.size(); ++l) sparse[l] = kinds[l] == 1;
  spec.ropes.push_back(parse_rope(config, {.head_dim = layer.mixers.front().attention().head_dim,
                                           .max_positions = spec.max_positions,
                                           .default_theta = 10000,
                                           .theta_key = nullptr,
                                           .layers = "sliding_attention"}));
  std::vector<int64_t> windows(spec.layers.size(), 0);
  if (config.has("layer_types")) windows = read_windows(config, 1024, layers);
  use_windows(spec, windows, 1);
  use_experts(spec, experts, sparse);
  return spec;
}

constexpr LayoutDefaults kFlint = [] {
  LayoutDefaults defaults = kQwen3Moe;
  defaults.vocab_size = 150144;
  defaults.num_hidden_layers = 49;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 262144;
  return defaults;
}();

// Without layer_types the first two layers, every fourth one from the second on, and the last have
// no window.
std::vector<LayerAttention> read_flint_layers(const JsonFields& config, int64_t count) {
  constexpr int64_t kWindow = 513;
  std::vector<LayerAttention> layers;
  for (int64_t window : read_windows(config, kWindow, count)) {
    const auto l = std::ssize(layers);
    const bool is_full = l < 2 || l % 4 == 1 || l == count - 1;
    if (is_full && !config.has("layer_types")) window = 0;
    layers.push_back({window, window > 0 ? std::optional<size_t>(0) : std::nullopt});
  }
  return layers;
}

DecoderSpec parse_flint(const JsonFields& config) {
  DecoderSpec spec = qwen3_layout(config, kFlint);
  const auto layers = std::ssize(spec.layers);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.sinks = attention.name + ".softmax_offset";
  const MlpSpec& mlp = layer.mlps.front().mlp;
  ExpertsSpec experts = moe_experts(config, {.absent_count = 256, .absent_top_k = 6}, 512, mlp);
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.normalized = read_boolean(config, "norm_topk_prob", true);
  experts.shared =
      mlp_like(mlp, mlp.name + ".shared_expert",
               read_size(config, "shared_expert_intermediate_size", 1024, 4 * kMaxWidth));
  std::vector<bool> sparse = read_sparse_layers(config, layers);
  if (!config.has("mlp_only_layers") || config.is_null("mlp_only_layers"))
    std::fill_n(sparse.begin(), std::min<int64_t>(2, layers), false);
  use_attention(spec, read_flint_layers(config, layers));
  use_experts(spec, experts, sparse);
  return spec;
}

}  // namespace

std::vector<Family> qwen_families() {
  return {{"Qwen2ForCausalLM",
           "qwen2",
           parse_qwen2,
           {},
           {"qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni_text"}},
          {"Qwen3ForCausalLM", "qwen3", parse_qwen3, {}, {"qwen3_vl_text"}},
          {"Qwen2MoeForCausalLM", "qwen2_moe", parse_qwen2_moe, {}},
          {"Qwen3MoeForCausalLM",
           "qwen3_moe",
           parse_qwen3_moe,
           {},
           {"qwen3_vl_moe_text", "qwen3_omni_moe_text"}},
          {"MellumForCausalLM", "mellum", parse_mellum, {"mtp.*"}},
          {"FlintForCausalLM", "flint", parse_flint, {}}};
}

}  // namespace sluice
