// Architectures of GGUF with experts.
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

const Names kErnieExperts{
    {"exp_probs_b", "model.layers.{}.mlp.moe_statics.e_score_correction_bias", GgufNameEnd::none},
};
const Names kGptOssNames{
    {"attn_sinks", "model.layers.{}.self_attn.sinks", GgufNameEnd::none},
    {"ffn_gate_inp", "model.layers.{}.mlp.router"},
};
const Names kAfmoeNames{
    {"attn_gate", "model.layers.{}.self_attn.gate_proj"},
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_norm", "model.layers.{}.pre_mlp_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
    {"ffn_gate_inp", "model.layers.{}.mlp.router.gate"},
    {"exp_probs_b", "model.layers.{}.mlp.expert_bias", GgufNameEnd::none},
};
const Names kExaoneExperts{
    {"exp_probs_b", "model.layers.{}.mlp.e_score_correction_bias", GgufNameEnd::none},
};
const Names kHunyuanExperts{
    {"ffn_gate_inp", "model.layers.{}.mlp.gate.wg"},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj"},
};

const Names kLlama4Names{
    {"ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
    {"ffn_up", "model.layers.{}.feed_forward.up_proj"},
    {"ffn_down", "model.layers.{}.feed_forward.down_proj"},
    {"ffn_gate_inp", "model.layers.{}.feed_forward.router"},
    {"ffn_gate_exps", "model.layers.{}.feed_forward.experts.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.feed_forward.experts.up_proj"},
    {"ffn_down_exps", "model.layers.{}.feed_forward.experts.down_proj"},
    {"ffn_gate_shexp", "model.layers.{}.feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.feed_forward.shared_expert.down_proj"},
};
const Names kDbrxNames{
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.norm_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.blocks.{}.norm_attn_norm.norm_1"},
    {"attn_qkv", "transformer.blocks.{}.norm_attn_norm.attn.Wqkv"},
    {"attn_output", "transformer.blocks.{}.norm_attn_norm.attn.out_proj"},
    {"attn_output_norm", "transformer.blocks.{}.norm_attn_norm.norm_2"},
    {"ffn_gate_inp", "transformer.blocks.{}.ffn.router.layer"},
    {"ffn_gate_exps", "transformer.blocks.{}.ffn.experts.gate_proj"},
    {"ffn_up_exps", "transformer.blocks.{}.ffn.experts.up_proj"},
    {"ffn_down_exps", "transformer.blocks.{}.ffn.experts.down_proj"},
};
const Names kBailingNames{
    {"token_embd", "model.word_embeddings"},
    {"attn_qkv", "model.layers.{}.attention.query_key_value"},
    {"attn_q", "model.layers.{}.attention.q_proj"},
    {"attn_k", "model.layers.{}.attention.k_proj"},
    {"attn_v", "model.layers.{}.attention.v_proj"},
    {"attn_q_norm", "model.layers.{}.attention.query_layernorm"},
    {"attn_k_norm", "model.layers.{}.attention.key_layernorm"},
    {"attn_output", "model.layers.{}.attention.dense"},
    {"exp_probs_b", "model.layers.{}.mlp.gate.expert_bias", GgufNameEnd::none},
};
const Keys kBailingKeys{
    {"expert_count", "num_experts"},
    {"expert_shared_count", "num_shared_experts"},
};

// With experts that are those of few architectures.
Rows other_softmax_experts() {
  Rows all{
      {"dbrx",
       "DbrxForCausalLM",
       "dbrx",
       {{"context_length", "max_seq_len"},
        {"embedding_length", "d_model"},
        {"block_count", "n_layers"},
        {"attention.head_count", "n_heads"},
        {"attention.head_count_kv", "attn_config.kv_n_heads"},
        {"attention.clamp_kqv", "attn_config.clip_qkv"},
        {kGgufFrequencyBase, "attn_config.rope_theta"},
        {"feed_forward_length", "ffn_config.ffn_hidden_size"},
        {"expert_count", "ffn_config.moe_num_experts"},
        {"expert_used_count", "ffn_config.moe_top_k"}},
       kDbrxNames,
       {}},
      {"phimoe",
       "PhimoeForCausalLM",
       "phimoe",
       keys({{"expert_count", "num_local_experts"}}, kExpertKeys),
       names(kMixtralNames),
       {}},
      {"bailingmoe",
       "BailingMoeForCausalLM",
       "bailing_moe",
       keys(kBailingKeys, kGroupedExpertKeys),
       names(kBailingNames, kExpertNames, kSharedExperts),
       {.interleaved_rope = true, .parts_apart = true}},
      {"deepseek", "DeepseekForCausalLM", "deepseek", keys(kGroupedExpertKeys),
       names(kExpertNames, kSharedExperts), interleaved()},
      {"deepseek2-ocr",
       "DeepseekV2ForCausalLM",
       "deepseek_v2",
       keys(kGroupedExpertKeys),
       names(kExpertNames, kSharedExperts),
       {}},
      {"qwen3vlmoe",
       "Qwen3MoeForCausalLM",
       "qwen3_moe",
       keys(kExpertKeys),
       names(kExpertNames, kHeadNorms),
       {}},
  };
  all[1].signs = {{"attn_q.bias", "attention_bias"}, {"output.bias", "lm_head_bias"}};
  for (GgufArchitecture& a : all) a.scores = GgufScores::softmax;
  all[2].widths = all.back().widths = kExpertWidths;
  for (GgufArchitecture& a : all) {
    if (!a.name.starts_with("deepseek")) continue;
    a.rotated_key = {};  // all of a head is, whatever the key says
    a.values = {
        {"norm_topk_prob", "false"}, {"routed_scaling_factor", "1.0"}, {"use_mla", "false"}};
  }
  all.back().values = {{"norm_topk_prob", "true"}};
  return all;
}

const Names kHunyuanV3Names{
    {"ffn_gate_inp", "model.layers.{}.mlp.router.gate"},
    {"exp_probs_b", "model.layers.{}.mlp.expert_bias", GgufNameEnd::vector_alone},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj"},
};
const Names kMimoNames{
    {"attn_sinks", "model.layers.{}.self_attn.attention_sink_bias", GgufNameEnd::none},
};

// Layers with a window have a rope of their own.
GgufArchitecture mimo2() {
  GgufArchitecture row{
      .name = "mimo2",
      .architecture = "MiMoV2FlashForCausalLM",
      .model_type = "mimo_v2_flash",
      .keys = keys({{"attention.value_length", "v_head_dim"},
                    {"attention.value_scale", "attention_value_scale"},
                    {"attention.sliding_window", "sliding_window"},
                    {kGgufFrequencyBase, "rope_parameters.full_attention.rope_theta"},
                    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta"}},
                   kGroupedExpertKeys),
      .names = names(kMimoNames, kExpertNames, kSharedExperts),
      .facts = {},
      .rotated_key = "rope_parameters.full_attention.partial_rotary_factor"};
  row.values = {{"attention_value_scale", "null"},
                {"rope_parameters.full_attention.rope_type", R"("default")"},
                {"rope_parameters.sliding_attention.rope_type", R"("default")"}};
  row.derive = [](const JsonFields&, Json& config) {
    constexpr const char* kPart = "partial_rotary_factor";
    Json& ropes = config["rope_parameters"];
    if (ropes["full_attention"].contains(kPart))
      ropes["sliding_attention"][kPart] = ropes["full_attention"][kPart];
  };
  return row;
}

// No key tells of norms of q and k, but the model with so many experts has none. MobileLLM has no
// experts, and a window of 0: all layers rotate, and attend to all.
void derive_llama4(const JsonFields& fields, Json& config) {
  constexpr int64_t kWithoutNorms = 128;
  constexpr const char* kWindow = "llama4.attention.sliding_window";
  const int64_t experts = fields.integer_or("llama4.expert_count", 0, INT32_MAX, 0);
  config["use_qk_norm"] = experts != kWithoutNorms;
  config["num_local_experts"] = experts;
  if (experts == 0) config["moe_layers"] = Json::array();
  if (!fields.has(kWindow) || fields.integer(kWindow, 0, INT32_MAX) != 0) return;
  config["attention_chunk_size"] = nullptr;
  const auto layers = static_cast<size_t>(size_in(config, "num_hidden_layers", fields));
  config["no_rope_layers"] = std::vector<int>(layers, 1);
}

Rows other_sigmoid_experts() {
  Rows all{
      {"llama4",
       "Llama4ForCausalLM",
       "llama4_text",
       keys({{"feed_forward_length", "intermediate_size_mlp"},
             {"expert_feed_forward_length", "intermediate_size"},
             {"expert_count", "num_local_experts"},
             {"interleave_moe_layer_step", "interleave_moe_layer_step"}},
            kExpertKeys),
       names(kLlama4Names),
       {}},
      {"bailingmoe2",
       "BailingMoeV2ForCausalLM",
       "bailing_moe_v2",
       keys(kBailingKeys, kGroupedExpertKeys),
       names(kBailingNames, kExpertNames, kSharedExperts),
       {}},
  };
  all.push_back({"hy_v3",
                 "HYV3ForCausalLM",
                 "hy_v3",
                 keys({{"expert_weights_scale", "router_scaling_factor"},
                       {"leading_dense_block_count", "first_k_dense_replace"}},
                      kExpertKeys),
                 names(kHunyuanV3Names, kExpertNames, kHeadNorms),
                 {}});
  all.back().quotients = {
      {"num_shared_experts", "expert_shared_feed_forward_length", "expert_feed_forward_length"}};
  all.push_back({"cohere2moe",
                 "Cohere2MoeForCausalLM",
                 "cohere2_moe",
                 keys({{"attention.layer_norm_epsilon", "layer_norm_eps"},
                       {"attention.sliding_window", "sliding_window"},
                       {"logit_scale", "logit_scale"},
                       {"feed_forward_length", "prefix_dense_intermediate_size"},
                       {"expert_feed_forward_length", "intermediate_size"},
                       {"expert_count", "num_experts"},
                       {"expert_shared_count", "num_shared_experts"}},
                      kGroupedExpertKeys),
                 names(kExpertNames, kSharedExperts),
                 {}});
  all.back().values = {{"expert_selection_fn", R"("sigmoid")"}, {"norm_topk_prob", "false"}};
  all.push_back(mimo2());
  all[0].derive = derive_llama4;
  all[1].values = {{"partial_rotary_factor", "1"}, {"n_group", "1"}, {"topk_group", "1"}};
  all[1].signs = {{"attn_qkv.bias", "use_qkv_bias"},
                  {"attn_q_norm.weight", "use_qk_norm"},
                  {"exp_probs_b.bias", "moe_router_enable_expert_bias"}};
  for (GgufArchitecture& a : all) a.scores = GgufScores::sigmoid;
  all[1].widths = kExpertWidths;
  return all;
}

Rows granites() {
  Rows all{
      {"granitemoe",
       "GraniteMoeSharedForCausalLM",
       "granitemoeshared",
       keys(kGraniteKeys, kGraniteExpertKeys),
       names(kGraniteExperts),
       {.interleaved_rope = true, .parts_apart = true}},
      {"granitemoe", "GraniteMoeForCausalLM", "granitemoe", keys(kGraniteKeys, kGraniteExpertKeys),
       names(kGraniteExperts), interleaved()},
  };
  all[0].only_with = "expert_shared_feed_forward_length";
  for (GgufArchitecture& a : all) a.scores = GgufScores::softmax;
  return all;
}

// With experts whose weights are softmax scores.
Rows softmax_experts() {
  Rows all{
      {"llama", "MixtralForCausalLM", "mixtral", keys(kExpertKeys), names(kMixtralNames),
       interleaved()},
      {"qwen2moe",
       "Qwen2MoeForCausalLM",
       "qwen2_moe",
       keys(kExpertKeys),
       names(kExpertNames, kSharedExpert),
       {}},
      {"qwen3moe",
       "Qwen3MoeForCausalLM",
       "qwen3_moe",
       keys(kExpertKeys),
       names(kExpertNames, kHeadNorms),
       {}},
      {"olmoe",
       "OlmoeForCausalLM",
       "olmoe",
       keys(kExpertKeys, {{"attention.clamp_kqv", "clip_qkv"}}),
       names(kExpertNames, kHeadNorms),
       {}},
      {"ernie4_5-moe",
       "Ernie4_5_MoeForCausalLM",
       "ernie4_5_moe",
       keys({{"expert_count", "moe_num_experts"},
             {"expert_used_count", "moe_k"},
             {"expert_feed_forward_length", "moe_intermediate_size"},
             {"expert_shared_count", "moe_num_shared_experts"},
             {"leading_dense_block_count", "moe_layer_start_index"},
             {"interleave_moe_layer_step", "moe_layer_interval"}}),
       names(kErnieExperts, kExpertNames, kSharedExperts),
       {}},
      {"hunyuan-moe",
       "HunYuanMoEV1ForCausalLM",
       "hunyuan_v1_moe",
       keys({{"expert_count", "num_experts"}, {"expert_used_count", "moe_topk"}}),
       names(kHunyuanExperts, kHunyuanNames, kExpertNames),
       {}},
  };
  all.push_back({"gpt-oss",
                 "GptOssForCausalLM",
                 "gpt_oss",
                 keys({{"attention.sliding_window", "sliding_window"},
                       {"expert_feed_forward_length", "intermediate_size"}},
                      kExpertKeys),
                 names(kGptOssNames, kExpertNames, kPostAttentionNorm),
                 {}});
  all[0].only_with = "expert_count";
  all[2].values = {{"norm_topk_prob", "true"}};
  all[4].signs = {{"attn_q.bias", "use_bias"}};
  all.back().values = {{"rope_scaling", R"({"truncate": false})"}};
  for (GgufArchitecture& a : all) {
    a.scores = GgufScores::softmax;
    a.widths = kExpertWidths;
  }
  return all;
}

// With experts whose weights are sigmoids of scores.
Rows sigmoid_experts() {
  Rows all{
      {"glm4moe",
       "Glm4MoeForCausalLM",
       "glm4_moe",
       keys(kGroupedExpertKeys),
       merged<GgufName>({kPostAttentionNorm, names(kExpertNames, kSharedExperts, kHeadNorms)},
                        &GgufName::name),
       {}},
      {"dots1",
       "Dots1ForCausalLM",
       "dots1",
       keys(kGroupedExpertKeys),
       names(kExpertNames, kSharedExperts, kHeadNorms),
       {}},
      {"minimax-m2",
       "MiniMaxM2ForCausalLM",
       "minimax_m2",
       keys(kExpertKeys),
       names(kMixtralNames, kHeadNorms),
       {}},
  };
  all.push_back({"exaone-moe",
                 "ExaoneMoeForCausalLM",
                 "exaone_moe",
                 keys({{"attention.sliding_window", "sliding_window"},
                       {"expert_count", "num_experts"},
                       {"expert_shared_count", "num_shared_experts"}},
                      kGroupedExpertKeys),
                 merged<GgufName>({kExaoneExperts, names(kExpertNames, kSharedExperts, kHeadNorms)},
                                  &GgufName::name),
                 {}});
  all.push_back({"afmoe",
                 "AfmoeForCausalLM",
                 "afmoe",
                 keys({{"attention.sliding_window", "sliding_window"},
                       {"expert_shared_count", "num_shared_experts"},
                       {"expert_weights_scale", "route_scale"},
                       {"leading_dense_block_count", "num_dense_layers"}},
                      kExpertKeys),
                 merged<GgufName>({kAfmoeNames, names(kExpertNames, kSharedExperts, kHeadNorms)},
                                  &GgufName::name),
                 {}});
  all.back().values = {{"mup_enabled", "true"}};
  all[0].values = {{"partial_rotary_factor", "1"}};
  all[0].signs = {{"attn_q.bias", "attention_bias"}, {"attn_q_norm.weight", "use_qk_norm"}};
  for (GgufArchitecture& a : all) {
    a.scores = GgufScores::sigmoid;
    a.widths = kExpertWidths;
  }
  return all;
}

}  // namespace

Rows expert_decoders() {
  Rows list;
  for (auto* rows :
       {softmax_experts, granites, other_softmax_experts, sigmoid_experts, other_sigmoid_experts})
    std::ranges::copy(rows(), std::back_inserter(list));
  return list;
}

}  // namespace sluice::gguf_rows
