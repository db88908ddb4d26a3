// Starcoder2ForCausalLM: Llama's layout with layer norms, biases, a plain MLP, and a window in all
// layers.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kStarcoder2Defaults{.vocab_size = 49152,
                                             .hidden_size = 3072,
                                             .intermediate_size = 12288,
                                             .num_hidden_layers = 30,
                                             .num_attention_heads = 24,
                                             .num_key_value_heads = 2,
                                             .max_position_embeddings = 4096,
                                             .rms_norm_eps = 1e-5,
                                             .rope_theta = 10000,
                                             .hidden_act = "gelu_pytorch_tanh",
                                             .tie_word_embeddings = true,
                                             .eps_key = "norm_epsilon",
                                             .norm = NormKind::layer,
                                             .norm_bias = true};

DecoderSpec parse_starcoder2(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kStarcoder2Defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "use_bias", true);
  mlp.up.bias = mlp.down.bias = attention.qkv.bias;
  use_plain_mlp(mlp, "c_fc", "c_proj");
  use_windows(spec, read_windows(config, std::nullopt, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> starcoder2_families() {
  return {{"Starcoder2ForCausalLM", "starcoder2", parse_starcoder2, {}}};
}

}  // namespace sluice
