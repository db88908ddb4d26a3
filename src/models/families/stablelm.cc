// StableLmForCausalLM (StableLM 3B, StableLM 2 1.6B): Llama's layout with layer norms, rope on a
// part of each head, and in some models attention and MLP side by side on one norm, or norms of
// each head's q and k (StableLM 2 12B).
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kStableLmDefaults{.vocab_size = 50304,
                                           .hidden_size = 2560,
                                           .intermediate_size = 6912,
                                           .num_hidden_layers = 32,
                                           .num_attention_heads = 32,
                                           .num_key_value_heads = 32,
                                           .max_position_embeddings = 4096,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 10000,
                                           .part_key = "partial_rotary_factor",
                                           .part = 0.25,
                                           .eps_key = "layer_norm_eps",
                                           .norm = NormKind::layer,
                                           .norm_bias = true};

DecoderSpec parse_stablelm(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kStableLmDefaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = read_boolean(config, "use_qkv_bias", false);
  if (read_boolean(config, "qk_layernorm", false)) {
    attention.q_norm = {attention.name + ".q_layernorm", spec.norm.params};
    attention.k_norm = {attention.name + ".k_layernorm", spec.norm.params};
    attention.head_norms = HeadNorms::each_tensor;
  }
  if (read_boolean(config, "use_parallel_residual", false)) {
    layer.mlps.front().input = BranchInput::layer_input;
    layer.mlps.front().norm = {};
  }
  return spec;
}

}  // namespace

std::vector<Family> stablelm_families() {
  return {{"StableLmForCausalLM", "stablelm", parse_stablelm, {}}};
}

}  // namespace sluice
