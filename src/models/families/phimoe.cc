// PhimoeForCausalLM (Phi-3.5-MoE): Mixtral's layout with layer norms, biases,
// and experts that a sparse mixer chooses.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kPhimoeDefaults{.vocab_size = 32064,
                                         .hidden_size = 4096,
                                         .intermediate_size = 6400,
                                         .num_hidden_layers = 32,
                                         .num_attention_heads = 32,
                                         .num_key_value_heads = 8,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 1000000,
                                         .norm = NormKind::layer,
                                         .norm_bias = true};

// Its longrope has the factors of cos and sin under names of its own.
void read_mscale(const JsonFields& c, RopeConfig& rope) {
  if (rope.kind != RopeKind::longrope) return;
  const double shorter = rope_number(c, "short_mscale", rope.attention_factor);
  if (rope_number(c, "long_mscale", shorter) != shorter)
    fail(ErrorKind::refused, "{}: long_mscale must be short_mscale", c.where());
  rope.attention_factor = shorter;
  check_angles(rope, c.where());
}

DecoderSpec parse_phimoe(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kPhimoeDefaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_local_experts"}, .absent_count = 16, .absent_top_k = 2});
  experts.choice.score = RouterScore::sparse_mixer;
  const double jitter = c.number_or("router_jitter_noise", 0.01);
  if (experts.choice.top_k != 2 || !(jitter >= 0) || jitter > 1e6)
    fail(ErrorKind::refused,
         "{}: num_experts_per_tok must be 2, and router_jitter_noise not below "
         "0",
         c.where());
  experts.choice.jitter = static_cast<float>(jitter);
  MlpSpec& mlp = layer.mlps.front().mlp;
  name_mlp(mlp, layer.name + ".block_sparse_moe", "w1", "w3", "w2");
  name_experts(experts, mlp, mlp.width.size);
  read_mscale(c, spec.ropes.front());
  spec.head_bias = read_boolean(c, "lm_head_bias", false);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  use_windows(spec, read_windows(c, std::nullopt, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> phimoe_families() {
  return {{"PhimoeForCausalLM", "phimoe", parse_phimoe, {}}};
}

}  // namespace sluice
