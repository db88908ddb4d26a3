// SeedOssForCausalLM (Seed-OSS): Llama's layout, with biases of q, k and v.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kSeedOssDefaults{.vocab_size = 155136,
                                          .hidden_size = 4096,
                                          .intermediate_size = 27648,
                                          .num_hidden_layers = 64,
                                          .num_attention_heads = 80,
                                          .num_key_value_heads = 8,
                                          .head_dim = 128,
                                          .max_position_embeddings = 524288,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 10000};

DecoderSpec parse_seed_oss(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kSeedOssDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = read_boolean(config, "attention_bias", true);
  attention.output.bias = read_boolean(config, "attention_out_bias", false);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, "mlp_bias", false);
  return spec;
}

}  // namespace

std::vector<Family> seed_oss_families() {
  return {{"SeedOssForCausalLM", "seed_oss", parse_seed_oss, {}}};
}

}  // namespace sluice
