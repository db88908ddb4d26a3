// BitNetForCausalLM (BitNet b1.58): Llama's layout, where attention's output and what the MLP's
// last matrix takes have a norm each.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kBitnet{.vocab_size = 128256,
                                 .hidden_size = 2560,
                                 .intermediate_size = 6912,
                                 .num_hidden_layers = 30,
                                 .num_attention_heads = 20,
                                 .num_key_value_heads = 5,
                                 .max_position_embeddings = 2048,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 500000,
                                 .hidden_act = "relu2"};

DecoderSpec parse_bitnet(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kBitnet);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.output_norm = {attention.name + ".attn_sub_norm", spec.norm.params};
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.inner_norm = {mlp.name + ".ffn_sub_norm", spec.norm.params};
  return spec;
}

}  // namespace

std::vector<Family> bitnet_families() {
  return {{"BitNetForCausalLM", "bitnet", parse_bitnet, {}}};
}

}  // namespace sluice
