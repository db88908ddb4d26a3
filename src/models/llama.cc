// LlamaForCausalLM (Llama 2, 3, 3.1, 3.2, and everything that is published in its layout).
#include "src/base/error.h"
#include "src/models/families.h"

namespace sluice {
namespace {

DecoderConfig parse_llama(const JsonFields& config) {
  DecoderConfig c = parse_decoder_config(config);
  if (config.number_or("partial_rotary_factor", 1) != 1) {
    fail(ErrorKind::refused, "{}: partial_rotary_factor is not supported for LlamaForCausalLM",
         config.where());
  }
  c.qkv_bias = c.output_bias = config.boolean_or("attention_bias", false);
  c.mlp_bias = config.boolean_or("mlp_bias", false);
  return c;
}

}  // namespace

std::vector<Family> llama_families() {
  return {{"LlamaForCausalLM",
           parse_llama,
           {"*.rotary_emb.inv_freq", "*.self_attn.bias", "*.self_attn.masked_bias", "*.attn.bias",
            "vision_tower.*", "*.vision_tower.*", "mtp.*", "*.mtp.*"}}};
}

}  // namespace sluice
