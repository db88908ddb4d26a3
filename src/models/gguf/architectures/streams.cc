// Architectures of GGUF with several residual streams.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

const Names kSummaryNames{
    {"token_embd", "embed"},
    {"output_norm", "norm"},
    {"output", "head"},
    {"output_hc_fn", "hc_head_fn", GgufNameEnd::none},
    {"output_hc_base", "hc_head_base", GgufNameEnd::none},
    {"output_hc_scale", "hc_head_scale", GgufNameEnd::none},
    {"hc_attn_fn", "layers.{}.hc_attn_fn", GgufNameEnd::none},
    {"hc_attn_base", "layers.{}.hc_attn_base", GgufNameEnd::none},
    {"hc_attn_scale", "layers.{}.hc_attn_scale", GgufNameEnd::none},
    {"hc_ffn_fn", "layers.{}.hc_ffn_fn", GgufNameEnd::none},
    {"hc_ffn_base", "layers.{}.hc_ffn_base", GgufNameEnd::none},
    {"hc_ffn_scale", "layers.{}.hc_ffn_scale", GgufNameEnd::none},
    {"attn_norm", "layers.{}.attn_norm"},
    {"attn_sinks", "layers.{}.attn.attn_sink", GgufNameEnd::none},
    {"attn_q_a", "layers.{}.attn.wq_a"},
    {"attn_q_a_norm", "layers.{}.attn.q_norm"},
    {"attn_q_b", "layers.{}.attn.wq_b"},
    {"attn_kv", "layers.{}.attn.wkv"},
    {"attn_kv_a_norm", "layers.{}.attn.kv_norm"},
    {"attn_output_a", "layers.{}.attn.wo_a"},
    {"attn_output_b", "layers.{}.attn.wo_b"},
    {"attn_compressor_kv", "layers.{}.attn.compressor.wkv"},
    {"attn_compressor_gate", "layers.{}.attn.compressor.wgate"},
    {"attn_compressor_ape", "layers.{}.attn.compressor.ape", GgufNameEnd::none},
    {"attn_compressor_norm", "layers.{}.attn.compressor.norm"},
    {"indexer.attn_q_b", "layers.{}.attn.indexer.wq_b"},
    {"indexer.proj", "layers.{}.attn.indexer.weights_proj"},
    {"indexer_compressor_kv", "layers.{}.attn.indexer.compressor.wkv"},
    {"indexer_compressor_gate", "layers.{}.attn.indexer.compressor.wgate"},
    {"indexer_compressor_ape", "layers.{}.attn.indexer.compressor.ape", GgufNameEnd::none},
    {"indexer_compressor_norm", "layers.{}.attn.indexer.compressor.norm"},
    {"ffn_norm", "layers.{}.ffn_norm"},
    {"ffn_gate_inp", "layers.{}.ffn.gate"},
    {"ffn_gate_tid2eid", "layers.{}.ffn.gate.tid2eid", GgufNameEnd::none},
    {"exp_probs_b", "layers.{}.ffn.gate.bias", GgufNameEnd::none},
    {"ffn_gate_exps", "layers.{}.ffn.experts.w1"},
    {"ffn_up_exps", "layers.{}.ffn.experts.w3"},
    {"ffn_down_exps", "layers.{}.ffn.experts.w2"},
    {"ffn_gate_shexp", "layers.{}.ffn.shared_experts.w1"},
    {"ffn_up_shexp", "layers.{}.ffn.shared_experts.w3"},
    {"ffn_down_shexp", "layers.{}.ffn.shared_experts.w2"},
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
