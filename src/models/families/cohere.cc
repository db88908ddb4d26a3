// CohereForCausalLM and Cohere2ForCausalLM (Command R, R7B, A; Aya): attention and MLP side by side
// on one layer norm without bias, rope on neighbours, a multiplier of logits. The first may have
// norms of each head's q and k (Command R+), the second has windows, and layers without one do not
// rotate. Cohere2MoeForCausalLM: the second with experts from some layer on, and RMS norms where
// config.json says so. CohereCompassForCausalLM (North Micro): rope on halves, of each kind of
// layers its own, or none.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kCohere{.vocab_size = 256000,
                                 .hidden_size = 8192,
                                 .intermediate_size = 22528,
                                 .num_hidden_layers = 40,
                                 .num_attention_heads = 64,
                                 .max_position_embeddings = 8192,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 500000,
                                 .tie_word_embeddings = true,
                                 .eps_key = "layer_norm_eps",
                                 .norm = NormKind::layer};
constexpr LayoutDefaults kCohere2 = [] {
  LayoutDefaults defaults = kCohere;
  defaults.rope_theta = 10000;
  return defaults;
}();

// `may_lack_scale`: logits are not multiplied where config.json does not say it.
DecoderSpec cohere_layout(const JsonFields& config, const LayoutDefaults& defaults,
                          bool may_lack_scale = false) {
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  MlpBranch& mlp = spec.kinds.front().mlps.front();
  mlp.input = BranchInput::layer_input;
  mlp.norm = {};
  constexpr const char* kScale = "logit_scale";
  if (may_lack_scale && !config.has(kScale)) return spec;
  spec.logit_multiplier = read_factor(config, kScale, 0.0625);
  return spec;
}

DecoderSpec parse_cohere(const JsonFields& config) {
  DecoderSpec spec = cohere_layout(config, kCohere);
  if (!read_flag(config, "use_qk_norm", false)) return spec;
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.head_norms = HeadNorms::each;
  return spec;
}

DecoderSpec parse_cohere2(const JsonFields& config) {
  constexpr int64_t kWindow = 4096, kPattern = 4;
  DecoderSpec spec = cohere_layout(config, kCohere2);
  const int64_t each = config.integer_or("sliding_window_pattern", 1, kMaxLayers, kPattern);
  std::vector<LayerAttention> layers;
  for (int64_t window : read_windows(config, kWindow, std::ssize(spec.layers), each))
    layers.push_back({window, window > 0 ? std::optional<size_t>(0) : std::nullopt});
  use_attention(spec, layers);
  return spec;
}

// Experts as wide as intermediate_size, whose sum with the shared one may be halved.
ExpertsSpec cohere2_moe_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, {.absent_count = 8, .absent_top_k = 2});
  name_experts(experts, mlp, mlp.width.size);
  const std::string scores = c.string_or("expert_selection_fn", "softmax");
  if (scores != "softmax" && scores != "sigmoid")
    fail(ErrorKind::refused, "{}: expert_selection_fn is {}, but must be softmax or sigmoid",
         c.where(), io::printable(scores));
  experts.choice.normalized = true;  // a softmax of the chosen ones
  if (scores == "sigmoid") {
    experts.choice.score = RouterScore::sigmoid;
    experts.choice.normalized = read_boolean(c, "norm_topk_prob", true);
  }
  const int64_t shared = c.integer_or("num_shared_experts", 0, kMostExperts, 0);
  if (shared > 0)
    experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", shared * mlp.width.size);
  return experts;
}

// Without layer_types, layers before the experts have a pattern of their own.
std::vector<int64_t> cohere2_moe_windows(const JsonFields& c, int64_t layers, int64_t own_each) {
  std::vector<int64_t> windows = read_windows(c, 4096, layers);
  if (c.has("layer_types")) return windows;
  const int64_t own = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 0);
  const int64_t each = read_size(c, "sliding_window_pattern", 4, kMaxLayers);
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t number = l < own ? l + 1 : l - own + 1;
    if (number % (l < own ? own_each : each) == 0) windows[static_cast<size_t>(l)] = 0;
  }
  return windows;
}

DecoderSpec parse_cohere2_moe(const JsonFields& c) {
  LayoutDefaults defaults = kCohere2;
  defaults.head_dim = 128;
  if (c.has("rms_norm_eps")) {
    defaults.eps_key = "rms_norm_eps";
    defaults.norm = NormKind::rms;
  }
  if (c.has("rope_scaling"))
    fail(ErrorKind::refused, "{}: rope_scaling is not read by this class; give rope_parameters",
         c.where());
  DecoderSpec spec = cohere_layout(c, defaults);
  const auto count = std::ssize(spec.layers);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  const ExpertsSpec experts = cohere2_moe_experts(c, mlp);
  mlp.width.size = c.integer_or("prefix_dense_intermediate_size", 1, 4 * kMaxWidth, mlp.width.size);
  const std::vector<bool> sparse = read_mlp_layer_types(c, count, 0);
  const int64_t own_each = read_size(c, "prefix_dense_sliding_window_pattern", 1, kMaxLayers);
  const std::vector<int64_t> windows = cohere2_moe_windows(c, count, own_each);
  std::vector<LayerAttention> layers;
  for (size_t l = 0; l < windows.size(); ++l) {
    const bool turns = windows[l] > 0 || (!sparse[l] && own_each == 1);
    layers.push_back({windows[l], turns ? std::optional<size_t>(0) : std::nullopt});
  }
  use_attention(spec, layers);
  use_experts(spec, experts, sparse);
  const std::string sum = c.string_or("shared_expert_combination_strategy", "average");
  if (sum != "average" && sum != "sum")
    fail(ErrorKind::refused,
         "{}: shared_expert_combination_strategy is {}, but must be average or sum", c.where(),
         io::printable(sum));
  for (LayerSpec& layer : spec.kinds) {
    MlpBranch& branch = layer.mlps.front();
    if (branch.experts && branch.experts->shared && sum == "average") branch.multiplier = 0.5F;
  }
  return spec;
}

// The rope of each kind of layers: layers whose fields are null do not rotate.
DecoderSpec parse_cohere_compass(const JsonFields& c) {
  LayoutDefaults defaults = kCohere2;
  defaults.rope_layers = "full_attention";
  DecoderSpec spec = cohere_layout(c, defaults, true);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.rope = RopePairing::halves;
  spec.ropes.push_back(parse_rope(c, {.head_dim = attention.head_dim,
                                      .max_positions = spec.max_positions,
                                      .default_theta = defaults.rope_theta,
                                      .theta_key = nullptr,
                                      .layers = "sliding_attention"}));
  const auto turns = [&](const char* layers) {
    return !c.has("rope_parameters") || !c.raw("rope_parameters").contains(layers) ||
           !c.raw("rope_parameters")[layers].is_null();
  };
  const bool full_turns = turns("full_attention"), sliding_turns = turns("sliding_attention");
  std::vector<int64_t> windows(spec.layers.size(), 0);
  if (c.has("layer_types")) windows = read_windows(c, 4096, std::ssize(spec.layers));
  std::vector<LayerAttention> layers;
  for (int64_t window : windows) {
    const bool rotates = window > 0 ? sliding_turns : full_turns;
    layers.push_back({window, rotates ? std::optional<size_t>(window > 0 ? 1 : 0) : std::nullopt});
  }
  use_attention(spec, layers);
  return spec;
}

}  // namespace

std::vector<Family> cohere_families() {
  return {{"CohereForCausalLM", "cohere", parse_cohere, {}},
          {"Cohere2ForCausalLM", "cohere2", parse_cohere2, {}},
          {"Cohere2MoeForCausalLM", "cohere2_moe", parse_cohere2_moe, {}},
          {"CohereCompassForCausalLM",
           "cohere_compass_text",
           parse_cohere_compass,
           {"model.visual.*"},
           {"cohere_compass"}}};
}

}  // namespace sluice
