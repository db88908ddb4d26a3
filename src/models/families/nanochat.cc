// NanoChatForCausalLM (nanochat): Llama's layout with norms without weights, one of them behind the
// embedding, and of each head's q and k once they are rotated, which they are backwards; a plain
// MLP.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kNanoChat{.vocab_size = 50304,
                                   .hidden_size = 768,
                                   .intermediate_size = 8192,
                                   .num_hidden_layers = 12,
                                   .num_attention_heads = 6,
                                   .max_position_embeddings = 2048,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000,
                                   .hidden_act = "relu2"};

DecoderSpec parse_nanochat(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kNanoChat);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.norms_after_rope = true;
  use_plain_mlp(layer.mlps.front().mlp, "fc1", "fc2");
  spec.embedding_norm = {"model.embedding_norm", spec.norm.params};
  each_norm(spec, [](NormSpec& norm) { norm.weight = false; });
  RopeConfig& rope = spec.ropes.front();
  rope.factors.assign(static_cast<size_t>(rope.dim / 2), -1);
  spec.logit_soft_cap = read_cap(config, "final_logit_softcapping", 15);
  return spec;
}

}  // namespace

std::vector<Family> nanochat_families() {
  return {{"NanoChatForCausalLM", "nanochat", parse_nanochat, {}}};
}

}  // namespace sluice
