// PersimmonForCausalLM (Persimmon, and the language model of Fuyu): Llama's layout with layer
// norms, biases, rope on a part of each head, q, k and v of a head next to each other in one
// tensor, norms of each head's q and k, and a plain MLP.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kPersimmonDefaults{.vocab_size = 262144,
                                            .hidden_size = 4096,
                                            .intermediate_size = 16384,
                                            .num_hidden_layers = 36,
                                            .num_attention_heads = 64,
                                            .max_position_embeddings = 16384,
                                            .rms_norm_eps = 1e-5,
                                            .rope_theta = 10000,
                                            .hidden_act = "relu2",
                                            .part_key = "partial_rotary_factor",
                                            .part = 0.5,
                                            .eps_key = "layer_norm_eps",
                                            .norm = NormKind::layer,
                                            .norm_bias = true};

DecoderSpec parse_persimmon(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kPersimmonDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  const int64_t d = attention.head_dim;
  attention.kv_heads = attention.heads;
  attention.qkv = one_linear(attention.name + ".query_key_value", true);
  attention.qkv.parts.resize(3, attention.qkv.parts.front());
  for (size_t i = 0; i < attention.qkv.parts.size(); ++i)
    attention.qkv.parts[i].view = {
        .first = static_cast<int64_t>(i) * d, .group = d, .stride = 3 * d};
  attention.output = one_linear(attention.name + ".dense", true);
  if (read_boolean(config, "qk_layernorm", true)) {
    attention.q_norm = {attention.name + ".q_layernorm", spec.norm.params, true};
    attention.k_norm = {attention.name + ".k_layernorm", spec.norm.params, true};
  }
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = true;
  use_plain_mlp(mlp, "dense_h_to_4h", "dense_4h_to_h");
  spec.norm.name = "model.final_layernorm";
  return spec;
}

}  // namespace

std::vector<Family> persimmon_families() {
  return {{"PersimmonForCausalLM", "persimmon", parse_persimmon, {}}};
}

}  // namespace sluice
