// PhiForCausalLM (Phi-1, Phi-1.5, Phi-2): attention and a plain MLP side by side on one norm, rope
// on a part of each head, biases everywhere.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kPhiDefaults{.vocab_size = 51200,
                                      .hidden_size = 2048,
                                      .intermediate_size = 8192,
                                      .num_hidden_layers = 24,
                                      .num_attention_heads = 32,
                                      .max_position_embeddings = 2048,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 10000,
                                      .hidden_act = "gelu_new",
                                      .part_key = "partial_rotary_factor",
                                      .part = 0.5,
                                      .eps_key = "layer_norm_eps",
                                      .norm = NormKind::layer,
                                      .norm_bias = true};

DecoderSpec parse_phi(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kPhiDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.output = one_linear(attention.name + ".dense", true);
  attention.qkv.bias = true;
  if (read_boolean(config, "qk_layernorm", false)) {
    attention.q_norm = {attention.name + ".q_layernorm", spec.norm.params, true};
    attention.k_norm = {attention.name + ".k_layernorm", spec.norm.params, true};
  }
  MlpBranch& mlp = spec.kinds.front().mlps.front();
  mlp.mlp.up.bias = mlp.mlp.down.bias = true;
  use_plain_mlp(mlp.mlp, "fc1", "fc2");
  mlp.input = BranchInput::layer_input;
  mlp.norm = {};
  spec.norm.name = "model.final_layernorm";
  spec.head_bias = true;
  return spec;
}

}  // namespace

std::vector<Family> phi_families() { return {{"PhiForCausalLM", "phi", parse_phi, {}}}; }

}  // namespace sluice
