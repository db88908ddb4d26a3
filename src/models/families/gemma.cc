// GemmaForCausalLM, Gemma2ForCausalLM and Gemma3ForCausalLM (and the language model in
// Gemma3ForConditionalGeneration): Llama's layout, where norms multiply by 1 + w and the embedding
// is multiplied by sqrt(hidden_size). From the second on blocks have a norm before and behind, and
// some layers a window; the second caps scores and logits, the third has norms of each head's q and
// k, and angles of their own in the layers with a window.
#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kGemma{.vocab_size = 256000,
                                .hidden_size = 3072,
                                .intermediate_size = 24576,
                                .num_hidden_layers = 28,
                                .num_attention_heads = 16,
                                .num_key_value_heads = 16,
                                .head_dim = 256,
                                .max_position_embeddings = 8192,
                                .rms_norm_eps = 1e-6,
                                .rope_theta = 10000,
                                .hidden_act = "gelu_pytorch_tanh",
                                .tie_word_embeddings = true};
constexpr LayoutDefaults kGemma2 = [] {
  LayoutDefaults defaults = kGemma;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.num_hidden_layers = 26;
  defaults.num_attention_heads = 8;
  defaults.num_key_value_heads = 4;
  defaults.activation_key = "hidden_activation";
  return defaults;
}();
constexpr LayoutDefaults kGemma3 = [] {
  LayoutDefaults defaults = kGemma2;
  defaults.vocab_size = 262208;
  defaults.max_position_embeddings = 131072;
  defaults.rope_theta = 1000000;
  defaults.rope_layers = "full_attention";
  return defaults;
}();
constexpr int64_t kGemmaWindow = 4096;

DecoderSpec gemma_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  if (config.boolean_or("use_bidirectional_attention", false))
    fail(ErrorKind::refused,
         "{}: use_bidirectional_attention is true (a model of embeddings), which is not supported",
         config.where());
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  each_norm(spec, [](NormSpec& norm) { norm.params.weight_offset = 1; });
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  return spec;
}

DecoderSpec parse_gemma(const JsonFields& config) {
  DecoderSpec spec = gemma_layout(config, kGemma);
  // Releases call it so, and mean the other.
  Activation& activation = spec.kinds.front().mlps.front().mlp.activation;
  if (activation == Activation::gelu) activation = Activation::gelu_tanh;
  return spec;
}

// The layout that the second and the third generation share.
DecoderSpec gemma2_layout(const JsonFields& config, const LayoutDefaults& defaults, double cap,
                          double logit_cap) {
  DecoderSpec spec = gemma_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.scale = 1 / std::sqrt(read_factor(config, "query_pre_attn_scalar", 256));
  attention.soft_cap = read_cap(config, "attn_logit_softcapping", cap);
  spec.logit_soft_cap = read_cap(config, "final_logit_softcapping", logit_cap);
  NormSpec norm = spec.norm;
  auto named = [&](const char* name) {
    norm.name = layer.name + name;
    return norm;
  };
  layer.mixers.front().output_norm = named(".post_attention_layernorm");
  layer.mlps.front().norm = named(".pre_feedforward_layernorm");
  layer.mlps.front().output_norm = named(".post_feedforward_layernorm");
  return spec;
}

DecoderSpec parse_gemma2(const JsonFields& config) {
  DecoderSpec spec = gemma2_layout(config, kGemma2, 50, 30);
  use_windows(spec, read_windows(config, kGemmaWindow, std::ssize(spec.layers), 2));
  return spec;
}

// Blocks' outputs have no norms.
DecoderSpec parse_vaultgemma(const JsonFields& config) {
  DecoderSpec spec = parse_gemma2(config);
  for (LayerSpec& layer : spec.kinds) {
    layer.mixers.front().output_norm = {};
    layer.mlps.front().output_norm = {};
  }
  return spec;
}

DecoderSpec parse_gemma3(const JsonFields& config) {
  DecoderSpec spec = gemma2_layout(config, kGemma3, 0, 0);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.soft_cap = 0;  // the class has attn_logit_softcapping, and does not use it
  attention.q_norm = attention.k_norm = spec.norm;
  attention.q_norm.name = attention.name + ".q_norm";
  attention.k_norm.name = attention.name + ".k_norm";
  // max_position_embeddings is what the scaling has made of the positions before it.
  RopeConfig& full = spec.ropes.front();
  if (full.kind == RopeKind::linear)
    full.max_positions = static_cast<int64_t>(std::min(
        static_cast<double>(full.max_positions) / full.factor, static_cast<double>(kMaxPositions)));
  spec.ropes.push_back(parse_rope(config, {.head_dim = attention.head_dim,
                                           .max_positions = spec.max_positions,
                                           .theta_key = "rope_local_base_freq",
                                           .layers = "sliding_attention"}));
  const int64_t each = config.integer_or("sliding_window_pattern", 1, kMaxLayers, 6);
  use_windows(spec, read_windows(config, kGemmaWindow, std::ssize(spec.layers), each), 1);
  return spec;
}

}  // namespace

std::vector<Family> gemma_families() {
  return {{"GemmaForCausalLM", "gemma", parse_gemma, {}},
          {"Gemma2ForCausalLM", "gemma2", parse_gemma2, {}},
          {"VaultGemmaForCausalLM", "vaultgemma", parse_vaultgemma, {}},
          {"Gemma3ForCausalLM", "gemma3_text", parse_gemma3, {}}};
}

}  // namespace sluice
