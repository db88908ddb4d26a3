// GraniteForCausalLM (Granite 3, dense): Llama's layout, with multipliers of the embedding, of what
// blocks compute, of scores and of logits.
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/llama.h"

namespace sluice {
namespace {

constexpr LlamaDefaults kDefaults{.vocab_size = 32000,
                                  .hidden_size = 4096,
                                  .intermediate_size = 11008,
                                  .num_hidden_layers = 32,
                                  .num_attention_heads = 32,
                                  .max_position_embeddings = 2048,
                                  .rms_norm_eps = 1e-6,
                                  .rope_theta = 10000};

DecoderSpec parse_granite(const JsonFields& config) {
  DecoderSpec spec = llama_layout(config, kDefaults);
  MixerBranch& mixer = spec.kinds.front().mixers.front();
  mixer.attention.qkv.bias = mixer.attention.output.bias =
      read_boolean(config, "attention_bias", false);
  MlpBranch& branch = spec.kinds.front().mlps.front();
  branch.mlp.up.bias = branch.mlp.down.bias = read_boolean(config, "mlp_bias", false);
  mixer.multiplier = branch.multiplier = read_factor(config, "residual_multiplier", 1);
  mixer.attention.scale = read_factor(config, "attention_multiplier", 1);
  spec.embedding_multiplier = read_factor(config, "embedding_multiplier", 1);
  spec.logit_multiplier = 1 / read_factor(config, "logits_scaling", 1);
  return spec;
}

}  // namespace

std::vector<Family> granite_families() {
  return {{"GraniteForCausalLM", "granite", parse_granite, {}}};
}

}  // namespace sluice
