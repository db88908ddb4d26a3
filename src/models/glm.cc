// GlmForCausalLM (GLM-4-9B) and Glm4ForCausalLM (GLM-4-0414): Llama's layout, where neighbours in a
// part of each head are rotated together, gate and up are one tensor, and in the second what a
// block computes has a norm, too.
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

// Of both classes.
constexpr LayoutDefaults kDefaults{.vocab_size = 151552,
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

DecoderSpec parse_glm(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention;
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

}  // namespace

std::vector<Family> glm_families() {
  return {{"GlmForCausalLM", "glm", parse_glm, {}}, {"Glm4ForCausalLM", "glm4", parse_glm4, {}}};
}

}  // namespace sluice
