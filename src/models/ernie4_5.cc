// Ernie4_5ForCausalLM (ERNIE 4.5, dense): Llama's layout, where neighbours are rotated together.
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kDefaults{.vocab_size = 103424,
                                   .hidden_size = 1024,
                                   .intermediate_size = 3072,
                                   .num_hidden_layers = 18,
                                   .num_attention_heads = 16,
                                   .num_key_value_heads = 2,
                                   .head_dim = 128,
                                   .max_position_embeddings = 131072,
                                   .rms_norm_eps = 1e-5,
                                   .rope_theta = 500000,
                                   .tie_word_embeddings = true};

DecoderSpec parse_ernie(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention;
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "use_bias", false);
  mlp.up.bias = mlp.down.bias = attention.qkv.bias;
  return spec;
}

}  // namespace

std::vector<Family> ernie4_5_families() {
  return {{"Ernie4_5ForCausalLM", "ernie4_5", parse_ernie, {}}};
}

}  // namespace sluice
