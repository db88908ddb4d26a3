// GlmForCausalLM (GLM-4-9B) and Glm4ForCausalLM (GLM-4-0414): Llama's layout,
// where neighbours in a part of each head are rotated together, gate and up are
// one tensor, and in the second what a block computes has a norm, too.
// Glm4MoeForCausalLM (GLM-4.5, 4.6): Llama's layout with rope on a part of each
// head, and from some layer on experts beside a shared one.
// Glm4MoeLiteForCausalLM (GLM-4.7-Flash): the same with latent attention.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Both classes have the same defaults.
constexpr LayoutDefaults kGlmDefaults{.vocab_size = 151552,
                                      .hidden_size = 4096,
                                      .intermediate_size = 13696,
                                      .num_hidden_layers = 40,
                                      .num_attention_heads = 32,
                                      .num_key_value_heads = 2,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1.5625e-7,
                                      .rope_theta = 10000,
                                      .part_key = "partial_rotary_factor",
                                      .part = 0.5};

constexpr LayoutDefaults kGlmMoe = [] {
  LayoutDefaults defaults = kGlmDefaults;
  defaults.intermediate_size = 10944;
  defaults.num_hidden_layers = 46;
  defaults.num_attention_heads = 96;
  defaults.num_key_value_heads = 8;
  defaults.head_dim = std::nullopt;
  defaults.rms_norm_eps = 1e-5;
  return defaults;
}();

DecoderSpec parse_glm(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kGlmDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = read_boolean(config, "attention_bias", true);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  fuse(mlp.up, mlp.name + ".gate_up_proj", {0, mlp.width.size});
  return spec;
}

DecoderSpec parse_glm4(const JsonFields& config) {
  DecoderSpec spec = parse_glm(config);
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().output_norm = {layer.name + ".post_self_attn_layernorm", spec.norm.params};
  layer.mlps.front().output_norm = {layer.name + ".post_mlp_layernorm", spec.norm.params};
  return spec;
}

constexpr LayoutDefaults kGlmLite{.vocab_size = 154880,
                                  .hidden_size = 2048,
                                  .intermediate_size = 10240,
                                  .num_hidden_layers = 47,
                                  .num_attention_heads = 20,
                                  .num_key_value_heads = 20,
                                  .max_position_embeddings = 202752,
                                  .rms_norm_eps = 1e-5,
                                  .rope_theta = 10000};

// Experts in the layers that mlp_layer_types calls sparse, or in those after
// the first.
DecoderSpec parse_glm_lite(const JsonFields& c) {
  constexpr MlaDefaults kMla{.query_rank = 768, .nope_dim = 192, .value_dim = 256};
  LayoutDefaults defaults = kGlmLite;
  defaults.head_dim = read_rope_dim(c, kMla);
  DecoderSpec spec = common_layout(c, defaults);
  use_mla(c, kMla, spec, spec.kinds.front());
  ExpertsSpec experts = deepseek_experts(c, {.count = 64, .used = 4, .width = 1536},
                                         spec.kinds.front().mlps.front().mlp);
  read_grouped_choice(c, {.factor = 1.8}, experts);
  const auto layers = std::ssize(spec.layers);
  std::vector<bool> sparse =
      sparse_from(c.integer_or("first_k_dense_replace", 0, kMaxLayers, 1), layers);
  const std::vector<size_t> kinds =
      read_layer_types(c, layers, {"dense", "sparse"}, "mlp_layer_types");
  for (size_t l = 0; l < kinds.size(); ++l) sparse[l] = kinds[l] == 1;
  use_experts(spec, experts, sparse);
  ignore_more_layers(c, spec);
  return spec;
}

DecoderSpec parse_glm_moe(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kGlmMoe);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = read_boolean(c, "attention_bias", false);
  if (read_boolean(c, "use_qk_norm", false)) {
    attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
    attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  }
  const MlpSpec& mlp = layer.mlps.front().mlp;
  ExpertsSpec experts = read_experts(
      c,
      {.count = {"n_routed_experts", "num_local_experts"}, .absent_count = 128, .absent_used = 8});
  read_grouped_choice(c, {.normalized = true}, experts);
  const int64_t width = read_size(c, "moe_intermediate_size", 1408, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.choice_bias = mlp.name + ".gate.e_score_correction_bias";
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts",
                            width * read_size(c, "n_shared_experts", 1, kMostExperts));
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 1);
  const auto layers = std::ssize(spec.layers);
  use_experts(spec, experts, sparse_from(dense, layers));
  ignore_more_layers(c, spec);
  return spec;
}

}  // namespace

std::vector<Family> glm_families() {
  return {{"GlmForCausalLM", "glm", parse_glm, {}},
          {"Glm4ForCausalLM", "glm4", parse_glm4, {}},
          {"Glm4MoeForCausalLM", "glm4_moe", parse_glm_moe, {}},
          {"Glm4MoeLiteForCausalLM", "glm4_moe_lite", parse_glm_lite, {}}};
}

}  // namespace sluice
