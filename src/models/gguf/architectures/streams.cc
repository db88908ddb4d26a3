// Architectures of GGUF with several residual streams.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

const Names kSummaryNames{
    {"token_embd", "model.embed"},
    {"output_norm", "model.norm"},
    {"output", "head"},
    {"output_hc_fn", "model.hc_head_fn", GgufNameEnd::none},
    {"output_hc_base", "model.hc_head_base", GgufNameEnd::none},
    {"output_hc_scale", "model.hc_head_scale", GgufNameEnd::none},
    {"hc_attn_fn", "model.layers.{}.hc_attn_fn", GgufNameEnd::none},
    {"hc_attn_base", "model.layers.{}.hc_attn_base", GgufNameEnd::none},
    {"hc_attn_scale", "model.layers.{}.hc_attn_scale", GgufNameEnd::none},
    {"hc_ffn_fn", "model.layers.{}.hc_ffn_fn", GgufNameEnd::none},
    {"hc_ffn_base", "model.layers.{}.hc_ffn_base", GgufNameEnd::none},
    {"hc_ffn_scale", "model.layers.{}.hc_ffn_scale", GgufNameEnd::none},
    {"attn_norm", "model.layers.{}.attn_norm"},
    {"attn_sinks", "model.layers.{}.attn.attn_sink", GgufNameEnd::none},
    {"attn_q_a", "model.layers.{}.attn.wq_a"},
    {"attn_q_a_norm", "model.layers.{}.attn.q_norm"},
    {"attn_q_b", "model.layers.{}.attn.wq_b"},
    {"attn_kv", "model.layers.{}.attn.wkv"},
    {"attn_kv_a_norm", "model.layers.{}.attn.kv_norm"},
    {"attn_output_a", "model.layers.{}.attn.wo_a"},
    {"attn_output_b", "model.layers.{}.attn.wo_b"},
    {"attn_compressor_kv", "model.layers.{}.attn.compressor.wkv"},
    {"attn_compressor_gate", "model.layers.{}.attn.compressor.wgate"},
    {"attn_compressor_ape", "model.layers.{}.attn.compressor.ape", GgufNameEnd::none},
    {"attn_compressor_norm", "model.layers.{}.attn.compressor.norm"},
    {"indexer.attn_q_b", "model.layers.{}.attn.indexer.wq_b"},
    {"indexer.proj", "model.layers.{}.attn.indexer.weights_proj"},
    {"indexer_compressor_kv", "model.layers.{}.attn.indexer.compressor.wkv"},
    {"indexer_compressor_gate", "model.layers.{}.attn.indexer.compressor.wgate"},
    {"indexer_compressor_ape", "model.layers.{}.attn.indexer.compressor.ape", GgufNameEnd::none},
    {"indexer_compressor_norm", "model.layers.{}.attn.indexer.compressor.norm"},
    {"ffn_norm", "model.layers.{}.ffn_norm"},
    {"ffn_gate_inp", "model.layers.{}.ffn.gate"},
    {"ffn_gate_tid2eid", "model.layers.{}.ffn.gate.tid2eid", GgufNameEnd::none},
    {"exp_probs_b", "model.layers.{}.ffn.gate.bias", GgufNameEnd::none},
    {"ffn_gate_exps", "model.layers.{}.ffn.experts.w1"},
    {"ffn_up_exps", "model.layers.{}.ffn.experts.w3"},
    {"ffn_down_exps", "model.layers.{}.ffn.experts.w2"},
    {"ffn_gate_shexp", "model.layers.{}.ffn.shared_experts.w1"},
    {"ffn_up_shexp", "model.layers.{}.ffn.shared_experts.w3"},
    {"ffn_down_shexp", "model.layers.{}.ffn.shared_experts.w2"},
};

constexpr const char *kLimits = "swiglu_limits", *kSharedLimits = "swiglu_limits_shared";

// All layers clamp their gates alike, and so do shared experts.
void derive_deepseek4(const JsonFields& fields, Json& config) {
  if (!config.contains(kLimits)) return;
  const Json limit = config[kLimits].front();
  for (const char* key : {kLimits, kSharedLimits}) {
    if (!config.contains(key)) continue;
    if (std::ranges::any_of(config[key], [&](const Json& own) { return own != limit; }))
      fail(ErrorKind::refused,
           "{}: swiglu_clamp_exp and swiglu_clamp_shexp have several values, "
           "which is not supported",
           fields.where());
    config.erase(key);
  }
  config["swiglu_limit"] = limit;
}

GgufArchitecture deepseek4() {
  GgufArchitecture row{.name = "deepseek4",
                       .architecture = "DeepseekV4ForCausalLM",
                       .model_type = "deepseek_v4",
                       .keys = {{"context_length", "max_position_embeddings"},
                                {"embedding_length", "hidden_size"},
                                {"block_count", "num_hidden_layers"},
                                {"attention.head_count", "num_attention_heads"},
                                {"attention.key_length", "head_dim"},
                                {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                {kGgufFrequencyBase, "rope_theta"},
                                {"attention.compress_rope_freq_base", "compress_rope_theta"},
                                {"rope.dimension_count", "qk_rope_head_dim"},
                                {"attention.q_lora_rank", "q_lora_rank"},
                                {"attention.output_group_count", "o_groups"},
                                {"attention.output_lora_rank", "o_lora_rank"},
                                {"attention.sliding_window", "sliding_window"},
                                {"attention.indexer.head_count", "index_n_heads"},
                                {"attention.indexer.key_length", "index_head_dim"},
                                {"attention.indexer.top_k", "index_topk"},
                                {"hyper_connection.count", "hc_mult"},
                                {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"},
                                {"hyper_connection.epsilon", "hc_eps"},
                                {"hash_layer_count", "num_hash_layers"},
                                {"expert_count", "n_routed_experts"},
                                {"expert_used_count", "num_experts_per_tok"},
                                {"expert_feed_forward_length", "moe_intermediate_size"},
                                {"expert_weights_scale", "routed_scaling_factor"}},
                       .names = kSummaryNames,
                       .facts = {},
                       .rotated_key = {}};
  row.lists = {{"attention.compress_ratios", "compress_ratios"},
               {"swiglu_clamp_exp", kLimits},
               {"swiglu_clamp_shexp", kSharedLimits}};
  row.scores = GgufScores::sqrt_softplus;
  row.derive = derive_deepseek4;
  return row;
}

}  // namespace

Rows stream_decoders() { return {deepseek4()}; }

}  // namespace sluice::gguf_rows
