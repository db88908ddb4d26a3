// LlamaForCausalLM (Llama 2, 3, 3.1, 3.2, and everything that is published in its layout).
#include "src/models/families.h"

namespace sluice {
namespace {

constexpr ConfigDefaults kDefaults{.vocab_size = 32000,
                                   .hidden_size = 4096,
                                   .intermediate_size = 11008,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 32,
                                   .num_key_value_heads = std::nullopt,
                                   .max_position_embeddings = 2048,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000,
                                   .hidden_act = "silu",
                                   .tie_word_embeddings = false,
                                   .sliding_window = std::nullopt};

DecoderConfig parse_llama(const JsonFields& config) {
  DecoderConfig c = parse_decoder_config(config, kDefaults);
  config.refuse_null({"attention_bias", "mlp_bias"});
  c.qkv_bias = c.output_bias = config.boolean_or("attention_bias", false);
  c.mlp_bias = config.boolean_or("mlp_bias", false);
  return c;
}

}  // namespace

std::vector<Family> llama_families() {
  return {{"LlamaForCausalLM",
           "llama",
           parse_llama,
           {"vision_tower.*", "*.vision_tower.*", "mtp.*", "*.mtp.*"}}};
}

}  // namespace sluice
