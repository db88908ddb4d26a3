// CohereForCausalLM and Cohere2ForCausalLM (Command R, R7B, A; Aya): attention and MLP side by side
// on one layer norm without bias, rope on neighbours, a multiplier of logits. The first may have
// norms of each head's q and k (Command R+), the second has windows, and layers without one do not
// rotate.
#include "src/models/config.h"
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

DecoderSpec cohere_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  MlpBranch& mlp = spec.kinds.front().mlps.front();
  mlp.input = BranchInput::layer_input;
  mlp.norm = {};
  spec.logit_multiplier = read_factor(config, "logit_scale", 0.0625);
  return spec;
}

DecoderSpec parse_cohere(const JsonFields& config) {
  DecoderSpec spec = cohere_layout(config, kCohere);
  if (!read_boolean(config, "use_qk_norm", false)) return spec;
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

}  // namespace

std::vector<Family> cohere_families() {
  return {{"CohereForCausalLM", "cohere", parse_cohere, {}},
          {"Cohere2ForCausalLM", "cohere2", parse_cohere2, {}}};
}

}  // namespace sluice
