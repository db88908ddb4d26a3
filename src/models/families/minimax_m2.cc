// MiniMaxM2ForCausalLM (MiniMax-M2): Llama's layout with norms of all of q and all of k, rope on a
// part of each head, and experts in the place of the MLP.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kMinimaxM2Defaults{.vocab_size = 200064,
                                            .hidden_size = 3072,
                                            .intermediate_size = 1536,
                                            .num_hidden_layers = 62,
                                            .num_attention_heads = 48,
                                            .num_key_value_heads = 8,
                                            .head_dim = 128,
                                            .max_position_embeddings = 196608,
                                            .rms_norm_eps = 1e-6,
                                            .rope_theta = 5000000,
                                            .part_key = "partial_rotary_factor"};

DecoderSpec parse_minimax(const JsonFields& c) {
  LayoutDefaults defaults = kMinimaxM2Defaults;
  if (c.has("rotary_dim") && !c.is_null("rotary_dim")) {
    const auto dim = static_cast<double>(read_size(c, "head_dim", 128));
    defaults.part = static_cast<double>(read_size(c, "rotary_dim", 128)) / dim;
  }
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.head_norms = HeadNorms::row;
  ExpertsSpec experts = read_experts(c, {.absent_count = 256, .absent_top_k = 8});
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.normalized = true;
  MlpSpec& mlp = layer.mlps.front().mlp;
  name_mlp(mlp, layer.name + ".block_sparse_moe", "w1", "w3", "w2");
  name_experts(experts, mlp, mlp.width.size);
  experts.choice_bias = mlp.name + ".e_score_correction_bias";
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> minimax_m2_families() {
  return {{"MiniMaxM2ForCausalLM", "minimax_m2", parse_minimax, {"mtp.*", "*.mtp.*"}}};
}

}  // namespace sluice
