// LlamaForCausalLM (Llama 2, 3, 3.1, 3.2, and everything that is published in its layout).
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLlamaDefaults{.vocab_size = 32000,
                                        .hidden_size = 4096,
                                        .intermediate_size = 11008,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .num_key_value_heads = std::nullopt,
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-6,
                                        .rope_theta = 10000};

DecoderSpec parse_llama(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kLlamaDefaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias =
      read_boolean(config, present(config, "attention_bias", "qkv_bias"), false);
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, present(config, "mlp_bias", "bias"), false);
  return spec;
}

}  // namespace

std::vector<Family> llama_families() {
  return {{"LlamaForCausalLM",
           "llama",
           parse_llama,
           {"vision_tower.*", "*.vision_tower.*", "mtp.*", "*.mtp.*"},
           {"internlm3", "iquestcoder"}}};
}

}  // namespace sluice
