// ApertusForCausalLM (Apertus): Llama's layout, with norms of each head's q and k, and xIELU(up x)
// in the place of the gated MLP, whose values are tensors of each layer. Apertus1p5TextForCausalLM
// (Apertus 1.5): the same with tokens of images and sound in the embedding, which the head may
// lack.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kApertusDefaults{.vocab_size = 131072,
                                          .hidden_size = 4096,
                                          .intermediate_size = 14336,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .max_position_embeddings = 65536,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 12000000,
                                          .hidden_act = "xielu"};

DecoderSpec apertus_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  MixerBranch& mixer = layer.mixers.front();
  AttentionSpec& attention = mixer.attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  mixer.norm.name = layer.name + ".attention_layernorm";
  MlpBranch& branch = layer.mlps.front();
  branch.norm.name = layer.name + ".feedforward_layernorm";
  use_plain_mlp(branch.mlp, "up_proj", "down_proj");
  if (branch.mlp.activation == Activation::xielu) {
    for (const char* value : {"alpha_p", "alpha_n", "beta", "eps"})
      branch.mlp.values.push_back(branch.mlp.name + ".act_fn." + value);
  }
  if (has_rope_fields(config)) return spec;
  RopeConfig& rope = spec.ropes.front();  // as the class has it
  rope.theta = kApertusDefaults.rope_theta;
  rope.kind = RopeKind::llama3;
  rope.factor = 8;
  rope.original_positions = 8192;
  return spec;
}

DecoderSpec parse_apertus(const JsonFields& config) {
  return apertus_layout(config, kApertusDefaults);
}

DecoderSpec parse_apertus1p5(const JsonFields& config) {
  LayoutDefaults defaults = kApertusDefaults;
  defaults.vocab_size = 266752;
  DecoderSpec spec = apertus_layout(config, defaults);
  spec.table_rows = spec.vocab_size;
  spec.vocab_size = config.integer_or("output_vocab_size", 1, spec.vocab_size, spec.vocab_size);
  return spec;
}

}  // namespace

std::vector<Family> apertus_families() {
  return {{"ApertusForCausalLM", "apertus", parse_apertus, {}},
          {"Apertus1p5TextForCausalLM", "apertus1p5_text", parse_apertus1p5, {}}};
}

}  // namespace sluice
