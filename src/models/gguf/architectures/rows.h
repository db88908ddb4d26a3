// Rows of the table of GGUF's architectures: lists that many of them share, and the files that have
// them, by what mixes tokens. Names, and what a converter changes in weights, are those of
// llama.cpp (gguf-py/gguf/constants.py, conversion/).
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <vector>

#include "src/models/gguf/gguf.h"

namespace sluice::gguf_rows {

using Rows = std::vector<GgufArchitecture>;
using Keys = std::vector<GgufKey>;
using Names = std::vector<GgufName>;

Rows decoders();  // with attention, and no experts
Rows gemmas();
Rows expert_decoders();
Rows latent_decoders();  // with latent attention
Rows state_decoders();   // with recurrences or convolutions
Rows stream_decoders();  // with several residual streams
Rows window_decoders();  // with a rope of their own in layers with a window

// Llama's, which most share. Keys whose values mean something else elsewhere are in the rows of
// the architectures.
inline const Keys kCommonKeys{
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {kGgufFrequencyBase, "rope_theta"},
};
inline const Keys kExpertKeys{
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};
// Keys of routers with sigmoids, groups and layers without experts.
inline const Keys kGroupedExpertKeys{
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
};
inline const Keys kGraniteKeys{
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"attention.scale", "attention_multiplier"},
    {"logit_scale", "logits_scaling"},
};
inline const Keys kGraniteExpertKeys{
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
};
inline const std::vector<GgufWidth> kExpertWidths{
    {"ffn_up_exps.weight", "moe_intermediate_size"},
    {"ffn_up_shexp.weight", "shared_expert_intermediate_size"},
};

inline const Names kCommonNames{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"attn_norm", "model.layers.{}.input_layernorm"},
    {"attn_q", "model.layers.{}.self_attn.q_proj"},
    {"attn_k", "model.layers.{}.self_attn.k_proj"},
    {"attn_v", "model.layers.{}.self_attn.v_proj"},
    {"attn_qkv", {}, GgufNameEnd::heads_apart},
    {"attn_output", "model.layers.{}.self_attn.o_proj"},
    {"ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"ffn_up", "model.layers.{}.mlp.up_proj"},
    {"ffn_down", "model.layers.{}.mlp.down_proj"},
};
inline const Names kHeadNorms{
    {"attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {"attn_k_norm", "model.layers.{}.self_attn.k_norm"},
};
// A norm of the MLP that is named after what it follows.
inline const Names kPostAttentionNorm{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
};
inline const Names kExpertNames{
    {"ffn_gate_inp", "model.layers.{}.mlp.gate"},
    {"ffn_gate_exps", "model.layers.{}.mlp.experts.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.mlp.experts.up_proj"},
    {"ffn_down_exps", "model.layers.{}.mlp.experts.down_proj"},
    {"ffn_gate_up_exps", "model.layers.{}.mlp.experts.gate_up_proj"},
};
inline const Names kSharedExpert{
    {"ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate", GgufNameEnd::one_row},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
};
inline const Names kSharedExperts{
    {"exp_probs_b", "model.layers.{}.mlp.gate.e_score_correction_bias", GgufNameEnd::none},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"},
};
inline const Names kMixtralNames{
    {"ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"},
    {"ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.w1"},
    {"ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.w3"},
    {"ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.w2"},
    {"ffn_gate.{e}", "model.layers.{}.block_sparse_moe.experts.{e}.w1"},
    {"ffn_up.{e}", "model.layers.{}.block_sparse_moe.experts.{e}.w3"},
    {"ffn_down.{e}", "model.layers.{}.block_sparse_moe.experts.{e}.w2"},
    {"exp_probs_b", "model.layers.{}.block_sparse_moe.e_score_correction_bias", GgufNameEnd::none},
};
inline const Names kHunyuanNames{
    {"attn_q_norm", "model.layers.{}.self_attn.query_layernorm"},
    {"attn_k_norm", "model.layers.{}.self_attn.key_layernorm"},
};

inline const Names kGraniteExperts{
    {"ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.up_proj"},
    {"ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.down_proj"},
    {"ffn_gate_shexp", "model.layers.{}.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.shared_mlp.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"},
};

inline const Names kLatentNames{
    {"attn_q_a", "model.layers.{}.self_attn.q_a_proj"},
    {"attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"},
    {"attn_q_b", "model.layers.{}.self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"},
    {"attn_kv_b", "model.layers.{}.self_attn.kv_b_proj"},
    {"attn_k_b", "model.layers.{}.self_attn.k_b_proj", GgufNameEnd::heads},
    {"attn_v_b", "model.layers.{}.self_attn.v_b_proj", GgufNameEnd::heads},
};

// Returns the rows of the first list, and of each further one those that the lists before have not.
template <class Row>
std::vector<Row> merged(std::initializer_list<std::vector<Row>> lists, auto key) {
  std::vector<Row> all;
  for (const std::vector<Row>& list : lists) {
    const auto before = static_cast<ptrdiff_t>(all.size());
    for (const Row& row : list) {
      const auto end = all.begin() + before;
      if (std::ranges::find(all.begin(), end, std::invoke(key, row), key) == end)
        all.push_back(row);
    }
  }
  return all;
}
// With the common ones.
inline Keys keys(const Keys& own, const Keys& more = {}) {
  return merged<GgufKey>({own, more, kCommonKeys}, &GgufKey::key);
}
inline Names names(const Names& own, const Names& more = {}, const Names& last = {}) {
  return merged<GgufName>({own, more, last, kCommonNames}, &GgufName::name);
}

// A size of config.json; 0: it is not there.
inline int64_t size_in(const Json& config, const char* key, const JsonFields& fields) {
  return JsonFields(config, fields.where()).integer_or(key, 0, INT32_MAX, 0);
}

constexpr SourceFacts interleaved() { return {.interleaved_rope = true}; }

}  // namespace sluice::gguf_rows
