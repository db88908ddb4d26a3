// HeliumForCausalLM (Helium): Llama's layout, where neighbours in each head are rotated together.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kHeliumDefaults{.vocab_size = 48000,
                                         .hidden_size = 2560,
                                         .intermediate_size = 7040,
                                         .num_hidden_layers = 24,
                                         .num_attention_heads = 20,
                                         .num_key_value_heads = 20,
                                         .head_dim = 128,
                                         .max_position_embeddings = 4096,
                                         .rms_norm_eps = 1e-8,
                                         .rope_theta = 100000};

DecoderSpec parse_helium(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kHeliumDefaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = read_boolean(config, "attention_bias", false);
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, "mlp_bias", false);
  return spec;
}

}  // namespace

std::vector<Family> helium_families() {
  return {{"HeliumForCausalLM", "helium", parse_helium, {}}};
}

}  // namespace sluice
