// The table of GGUF's architectures: what keys, names and values are those of the hub's config.json
// and tensors. The names and what a converter changes in weights are those of llama.cpp
// (gguf-py/gguf/constants.py, convert_hf_to_gguf.py).
#include <algorithm>
#include <functional>

#include "src/models/gguf/gguf.h"

namespace sluice {
namespace {

using Keys = std::vector<GgufKey>;
using GgufNames = std::vector<GgufName>;

// Llama's, which most share. Keys whose values mean something else elsewhere are in the rows of
// the architectures.
const Keys kCommonKeys{
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
const Keys kExpertKeys{
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};
// Keys of routers with sigmoids, groups and layers without experts.
const Keys kGroupedExpertKeys{
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
};
const Keys kGraniteKeys{
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"attention.scale", "attention_multiplier"},
    {"logit_scale", "logits_scaling"},
};
const std::vector<GgufWidth> kExpertWidths{
    {"ffn_up_exps.weight", "moe_intermediate_size"},
    {"ffn_up_shexp.weight", "shared_expert_intermediate_size"},
};

const GgufNames kCommonNames{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"attn_norm", "model.layers.{}.input_layernorm"},
    {"attn_q", "model.layers.{}.self_attn.q_proj"},
    {"attn_k", "model.layers.{}.self_attn.k_proj"},
    {"attn_v", "model.layers.{}.self_attn.v_proj"},
    {"attn_output", "model.layers.{}.self_attn.o_proj"},
    {"ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"ffn_up", "model.layers.{}.mlp.up_proj"},
    {"ffn_down", "model.layers.{}.mlp.down_proj"},
};
const GgufNames kHeadNorms{
    {"attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {"attn_k_norm", "model.layers.{}.self_attn.k_norm"},
};
const GgufNames kGemmaNorms{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};
const GgufNames kOutputNorms{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};
// A norm of the MLP that is named after what it follows.
const GgufNames kPostAttentionNorm{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
};
const GgufNames kGpt2Names{
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.h.{}.ln_1"},
    {"attn_qkv", "transformer.h.{}.attn.c_attn"},
    {"attn_output", "transformer.h.{}.attn.c_proj"},
    {"ffn_norm", "transformer.h.{}.ln_2"},
    {"ffn_up", "transformer.h.{}.mlp.c_fc"},
    {"ffn_down", "transformer.h.{}.mlp.c_proj"},
};
const GgufNames kNeoxNames{
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
    {"attn_norm", "gpt_neox.layers.{}.input_layernorm"},
    {"attn_qkv", "gpt_neox.layers.{}.attention.query_key_value"},
    {"attn_output", "gpt_neox.layers.{}.attention.dense"},
    {"ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"},
    {"ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
    {"ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
};
const GgufNames kBloomNames{
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.h.{}.input_layernorm"},
    {"attn_qkv", "transformer.h.{}.self_attention.query_key_value"},
    {"attn_output", "transformer.h.{}.self_attention.dense"},
    {"ffn_norm", "transformer.h.{}.post_attention_layernorm"},
    {"ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
    {"ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
};
const GgufNames kPhi3Names{
    {"attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};
const GgufNames kPhiNames{
    {"output_norm", "model.final_layernorm"},
    {"attn_output", "model.layers.{}.self_attn.dense"},
    {"ffn_up", "model.layers.{}.mlp.fc1"},
    {"ffn_down", "model.layers.{}.mlp.fc2"},
};
const GgufNames kStarcoder2Names{
    {"ffn_up", "model.layers.{}.mlp.c_fc"},
    {"ffn_down", "model.layers.{}.mlp.c_proj"},
};
const GgufNames kChatGlmNames{
    {"attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};
const GgufNames kGlm4Names{
    {"post_attention_norm", "model.layers.{}.post_self_attn_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};
const GgufNames kHunyuanNames{
    {"attn_q_norm", "model.layers.{}.self_attn.query_layernorm"},
    {"attn_k_norm", "model.layers.{}.self_attn.key_layernorm"},
};

const GgufNames kExpertNames{
    {"ffn_gate_inp", "model.layers.{}.mlp.gate"},
    {"ffn_gate_exps", "model.layers.{}.mlp.experts.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.mlp.experts.up_proj"},
    {"ffn_down_exps", "model.layers.{}.mlp.experts.down_proj"},
};
const GgufNames kSharedExpert{
    {"ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate", GgufNameEnd::one_row},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
};
const GgufNames kSharedExperts{
    {"exp_probs_b", "model.layers.{}.mlp.gate.e_score_correction_bias", GgufNameEnd::none},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"},
};
const GgufNames kErnieExperts{
    {"exp_probs_b", "model.layers.{}.mlp.moe_statics.e_score_correction_bias", GgufNameEnd::none},
};
const GgufNames kGptOssNames{
    {"attn_sinks", "model.layers.{}.self_attn.sinks", GgufNameEnd::none},
    {"ffn_gate_inp", "model.layers.{}.mlp.router"},
};
const GgufNames kAfmoeNames{
    {"attn_gate", "model.layers.{}.self_attn.gate_proj"},
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_norm", "model.layers.{}.pre_mlp_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
    {"ffn_gate_inp", "model.layers.{}.mlp.router.gate"},
    {"exp_probs_b", "model.layers.{}.mlp.expert_bias", GgufNameEnd::none},
};
const GgufNames kExaoneExperts{
    {"exp_probs_b", "model.layers.{}.mlp.e_score_correction_bias", GgufNameEnd::none},
};
const GgufNames kBitnetNames{
    {"attn_sub_norm", "model.layers.{}.self_attn.attn_sub_norm"},
    {"ffn_sub_norm", "model.layers.{}.mlp.ffn_sub_norm"},
};
const GgufNames kLfm2Names{
    {"token_embd_norm", "model.embedding_norm"},
    {"output_norm", "model.embedding_norm"},
    {"attn_norm", "model.layers.{}.operator_norm"},
    {"attn_q_norm", "model.layers.{}.self_attn.q_layernorm"},
    {"attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
    {"attn_output", "model.layers.{}.self_attn.out_proj"},
    {"shortconv.conv", "model.layers.{}.conv.conv", GgufNameEnd::convolution},
    {"shortconv.in_proj", "model.layers.{}.conv.in_proj"},
    {"shortconv.out_proj", "model.layers.{}.conv.out_proj"},
    {"ffn_norm", "model.layers.{}.ffn_norm"},
    {"ffn_gate", "model.layers.{}.feed_forward.w1"},
    {"ffn_up", "model.layers.{}.feed_forward.w3"},
    {"ffn_down", "model.layers.{}.feed_forward.w2"},
    {"ffn_gate_inp", "model.layers.{}.feed_forward.gate"},
    {"exp_probs_b", "model.layers.{}.feed_forward.expert_bias", GgufNameEnd::none},
    {"ffn_gate_exps", "model.layers.{}.feed_forward.experts.w1"},
    {"ffn_up_exps", "model.layers.{}.feed_forward.experts.w3"},
    {"ffn_down_exps", "model.layers.{}.feed_forward.experts.w2"},
};
const GgufNames kHunyuanExperts{
    {"ffn_gate_inp", "model.layers.{}.mlp.gate.wg"},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj"},
};
const GgufNames kMixtralNames{
    {"ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"},
    {"ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.w1"},
    {"ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.w3"},
    {"ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.w2"},
    {"ffn_gate.{e}", "model.layers.{}.block_sparse_moe.experts.{e}.w1"},
    {"ffn_up.{e}", "model.layers.{}.block_sparse_moe.experts.{e}.w3"},
    {"ffn_down.{e}", "model.layers.{}.block_sparse_moe.experts.{e}.w2"},
    {"exp_probs_b", "model.layers.{}.block_sparse_moe.e_score_correction_bias", GgufNameEnd::none},
};
const GgufNames kGraniteExperts{
    {"ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.up_proj"},
    {"ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.down_proj"},
};
const GgufNames kDeltaNetNames{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"attn_gate", "model.layers.{}.linear_attn.in_proj_z"},
    {"ssm_ba", "model.layers.{}.linear_attn.in_proj_ba"},
    {"ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"},
    {"ssm_beta", "model.layers.{}.linear_attn.in_proj_b"},
    {"ssm_conv1d", "model.layers.{}.linear_attn.conv1d", GgufNameEnd::convolution},
    {"ssm_dt", "model.layers.{}.linear_attn.dt_bias", GgufNameEnd::none},
    {"ssm_a", "model.layers.{}.linear_attn.A_log", GgufNameEnd::none},
    {"ssm_norm", "model.layers.{}.linear_attn.norm"},
    {"ssm_out", "model.layers.{}.linear_attn.out_proj"},
};
const GgufNames kMambaNames{
    {"token_embd", "backbone.embeddings"},
    {"output_norm", "backbone.norm_f"},
    {"output", "lm_head"},
    {"attn_norm", "backbone.layers.{}.norm"},
    {"ssm_in", "backbone.layers.{}.mixer.in_proj"},
    {"ssm_conv1d", "backbone.layers.{}.mixer.conv1d", GgufNameEnd::convolution},
    {"ssm_x", "backbone.layers.{}.mixer.x_proj"},
    {"ssm_dt", "backbone.layers.{}.mixer.dt_proj"},
    {"ssm_a", "backbone.layers.{}.mixer.A_log", GgufNameEnd::none},
    {"ssm_d", "backbone.layers.{}.mixer.D", GgufNameEnd::none},
    {"ssm_out", "backbone.layers.{}.mixer.out_proj"},
};
// Rates and skips are matrices of one column, and a norm has a row for each group.
const GgufNames kMamba2Names{
    {"ssm_dt", "backbone.layers.{}.mixer.dt_bias", GgufNameEnd::none},
    {"ssm_a", "backbone.layers.{}.mixer.A_log", GgufNameEnd::vector_alone},
    {"ssm_d", "backbone.layers.{}.mixer.D", GgufNameEnd::vector_alone},
    {"ssm_norm", "backbone.layers.{}.mixer.norm", GgufNameEnd::vector},
};
// GgufNames of layers for several tokens at once, which are not read.
const GgufNames kMoreLayers{
    {"nextn.eh_proj", "model.layers.{}.eh_proj"},
    {"nextn.embed_tokens", "model.layers.{}.embed_tokens"},
    {"nextn.enorm", "model.layers.{}.enorm"},
    {"nextn.hnorm", "model.layers.{}.hnorm"},
    {"nextn.shared_head_head", "model.layers.{}.shared_head.head"},
    {"nextn.shared_head_norm", "model.layers.{}.shared_head.norm"},
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
Keys keys(const Keys& own, const Keys& more = {}) {
  return merged<GgufKey>({own, more, kCommonKeys}, &GgufKey::key);
}
GgufNames names(const GgufNames& own, const GgufNames& more = {}, const GgufNames& last = {}) {
  return merged<GgufName>({own, more, last, kCommonNames}, &GgufName::name);
}

constexpr SourceFacts interleaved() { return {.interleaved_rope = true}; }

// The converter of llama.cpp writes the rows of q and k of these so that the two of a rotary pair
// are neighbours, adds the 1 of Gemma's norms to the weights, ...
std::vector<GgufArchitecture> llama_likes() {
  const Keys epsilon{{"attention.layer_norm_epsilon", "layer_norm_eps"}};
  std::vector<GgufArchitecture> all{
      {"llama", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, interleaved()},
      {"internlm2", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, interleaved()},
      {"exaone", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, {}},
      {"qwen2", "Qwen2ForCausalLM", "qwen2", kCommonKeys, kCommonNames, {}},
      {"qwen3", "Qwen3ForCausalLM", "qwen3", kCommonKeys, names(kHeadNorms), {}},
      {"phi3",
       "Phi3ForCausalLM",
       "phi3",
       keys({{"attention.sliding_window", "sliding_window"}}),
       names(kPhi3Names),
       {}},
      {"smollm3", "SmolLM3ForCausalLM", "smollm3", kCommonKeys, kCommonNames, interleaved()},
      {"arcee", "ArceeForCausalLM", "arcee", kCommonKeys, kCommonNames, interleaved()},
      {"granite", "GraniteForCausalLM", "granite", keys(kGraniteKeys), kCommonNames, interleaved()},
      {"mistral3", "Ministral3ForCausalLM", "ministral3", kCommonKeys, kCommonNames, interleaved()},
      {"olmo", "OlmoForCausalLM", "olmo", keys({{"attention.clamp_kqv", "clip_qkv"}}), kCommonNames,
       interleaved()},
      {"bitnet", "BitNetForCausalLM", "bitnet", kCommonKeys, names(kBitnetNames), {}},
      {"nemotron",
       "NemotronForCausalLM",
       "nemotron",
       keys({{"attention.layer_norm_epsilon", "norm_eps"}}),
       kCommonNames,
       {.norms_have_one = true}},
      {"olmo2",
       "Olmo3ForCausalLM",
       "olmo3",
       keys({{"attention.sliding_window", "sliding_window"}}),
       names(kHeadNorms, kOutputNorms),
       {}},
      {"olmo2", "Olmo2ForCausalLM", "olmo2", kCommonKeys, names(kHeadNorms, kOutputNorms), {}},
      {"starcoder2",
       "Starcoder2ForCausalLM",
       "starcoder2",
       keys({{"attention.layer_norm_epsilon", "norm_epsilon"},
             {"attention.sliding_window", "sliding_window"}}),
       names(kStarcoder2Names),
       {}},
      {"phi2", "PhiForCausalLM", "phi", keys(epsilon), names(kPhiNames), {}},
  };
  for (GgufArchitecture& a : all)
    if (a.architecture == "Olmo3ForCausalLM") a.only_with = "attention.sliding_window";
  return all;
}

// Others of such layers, some of whose keys follow from the tensors that are there, or are fixed.
std::vector<GgufArchitecture> llama_likes_with_values() {
  const Keys epsilon{{"attention.layer_norm_epsilon", "layer_norm_eps"}};
  std::vector<GgufArchitecture> all;
  all.push_back(
      {"stablelm", "StableLmForCausalLM", "stablelm", keys(epsilon), names(kHeadNorms), {}});
  all.back().values = {{"partial_rotary_factor", "1"}};
  all.back().signs = {{"attn_q.bias", "use_qkv_bias"}, {"attn_q_norm.weight", "qk_layernorm"}};
  all.push_back(
      {"seed_oss", "SeedOssForCausalLM", "seed_oss", kCommonKeys, names(kPostAttentionNorm), {}});
  all.back().signs = {{"attn_q.bias", "attention_bias"},
                      {"attn_output.bias", "attention_out_bias"}};
  all.push_back({"exaone4",
                 "Exaone4ForCausalLM",
                 "exaone4",
                 keys({{"attention.sliding_window", "sliding_window"}}),
                 names(kHeadNorms, kOutputNorms),
                 {}});
  all.back().values = {{"sliding_window", "null"}};
  all.push_back({"glm4", "Glm4ForCausalLM", "glm4", kCommonKeys, names(kGlm4Names), {}});
  all.back().values = {{"partial_rotary_factor", "1"}};
  all.back().signs = {{"attn_q.bias", "attention_bias"}};
  all.push_back({"chatglm", "GlmForCausalLM", "glm", kCommonKeys, names(kChatGlmNames), {}});
  all.back().values = {{"partial_rotary_factor", "1"}};
  all.back().signs = {{"attn_qkv.bias", "attention_bias"}};
  all.push_back({"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", kCommonKeys, kCommonNames, {}});
  all.back().signs = {{"attn_q.bias", "use_bias"}};
  all.push_back({"hunyuan-dense",
                 "HunYuanDenseV1ForCausalLM",
                 "hunyuan_v1_dense",
                 kCommonKeys,
                 names(kHunyuanNames),
                 {}});
  all.push_back({"command-r",
                 "CohereForCausalLM",
                 "cohere",
                 keys(epsilon, {{"logit_scale", "logit_scale"}}),
                 names(kHeadNorms),
                 {}});
  all.back().signs = {{"attn_q_norm.weight", "use_qk_norm"}};
  all.push_back({"cohere2",
                 "Cohere2ForCausalLM",
                 "cohere2",
                 keys(epsilon, {{"logit_scale", "logit_scale"},
                                {"attention.sliding_window", "sliding_window"}}),
                 kCommonNames,
                 {}});
  return all;
}

// Most layers have convolutions, and no KV heads.
std::vector<GgufArchitecture> convolutions() {
  const Keys own{{"attention.layer_norm_rms_epsilon", "norm_eps"},
                 {"shortconv.l_cache", "conv_L_cache"},
                 {"leading_dense_block_count", "num_dense_layers"}};
  std::vector<GgufArchitecture> all{
      {"lfm2", "Lfm2ForCausalLM", "lfm2", keys(own), names(kLfm2Names), {}},
      {"lfm2moe", "Lfm2MoeForCausalLM", "lfm2_moe", keys(own, kExpertKeys), names(kLfm2Names), {}},
  };
  for (GgufArchitecture& a : all) {
    a.signs = {{"shortconv.conv.bias", "conv_bias"}};
    a.without_kv_heads = "conv";
  }
  all[0].values = {{"block_auto_adjust_ff_dim", "false"}};
  all[1].signs.push_back({"exp_probs_b.bias", "use_expert_bias"});
  all[1].scores = GgufScores::sigmoid;
  all[1].widths = kExpertWidths;
  return all;
}

// Most layers have a gated DeltaNet.
std::vector<GgufArchitecture> delta_nets() {
  const Keys own{{"ssm.conv_kernel", "linear_conv_kernel_dim"},
                 {"ssm.state_size", "linear_key_head_dim"},
                 {"ssm.group_count", "linear_num_key_heads"},
                 {"ssm.time_step_rank", "linear_num_value_heads"},
                 {"full_attention_interval", "full_attention_interval"},
                 {"nextn_predict_layers", "num_nextn_predict_layers"}};
  const auto all_names = [](std::string_view qkv) {
    return merged<GgufName>({{{"attn_qkv", qkv}},
                             kDeltaNetNames,
                             kMoreLayers,
                             names(kExpertNames, kSharedExpert, kHeadNorms)},
                            &GgufName::name);
  };
  const SourceFacts facts{.norms_have_one = true, .negative_rates = true, .tiled_heads = true};
  const GgufNames apart = all_names("model.layers.{}.linear_attn.in_proj_qkv");
  std::vector<GgufArchitecture> all{
      {"qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text", keys(own), apart, facts},
      {"qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", keys(own, kExpertKeys), apart,
       facts},
      {"qwen3next",
       "Qwen3NextForCausalLM",
       "qwen3_next",
       keys(own, kExpertKeys),
       all_names("model.layers.{}.linear_attn.in_proj_qkvz"),
       {.norms_have_one = true, .stacked_heads = true, .negative_rates = true}},
  };
  for (GgufArchitecture& a : all) {
    a.values = {{"partial_rotary_factor", "1"}};
    a.quotients = {{"linear_value_head_dim", "ssm.inner_size", "ssm.time_step_rank"}};
    if (a.name == "qwen35") continue;
    a.scores = GgufScores::softmax;
    a.widths = kExpertWidths;
  }
  return all;
}

// No layer attends.
std::vector<GgufArchitecture> mambas() {
  const Keys own{{"embedding_length", "hidden_size"},
                 {"block_count", "num_hidden_layers"},
                 {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
                 {"ssm.conv_kernel", "conv_kernel"},
                 {"ssm.state_size", "state_size"}};
  const Keys channels{{"ssm.inner_size", "intermediate_size"},
                      {"ssm.time_step_rank", "time_step_rank"}};
  const Keys heads{{"ssm.time_step_rank", "num_heads"}, {"ssm.group_count", "n_groups"}};
  const SourceFacts facts{.negative_rates = true};
  std::vector<GgufArchitecture> all{
      {"mamba", "FalconMambaForCausalLM", "falcon_mamba",
       merged<GgufKey>({own, channels}, &GgufKey::key), kMambaNames, facts},
      {"mamba", "MambaForCausalLM", "mamba", merged<GgufKey>({own, channels}, &GgufKey::key),
       kMambaNames, facts},
      {"mamba2", "Mamba2ForCausalLM", "mamba2", merged<GgufKey>({own, heads}, &GgufKey::key),
       merged<GgufName>({kMamba2Names, kMambaNames}, &GgufName::name), facts},
  };
  for (GgufArchitecture& a : all)
    a.signs = {{"ssm_conv1d.bias", "use_conv_bias"}, {"ssm_in.bias", "use_bias"}};
  all[0].only_with = "ssm.dt_b_c_rms";
  all[2].quotients = {{"head_dim", "ssm.inner_size", "ssm.time_step_rank"}};
  return all;
}

std::vector<GgufArchitecture> gemmas() {
  const SourceFacts facts{.norms_have_one = true};
  return {
      {"gemma", "GemmaForCausalLM", "gemma", kCommonKeys, kCommonNames, facts},
      {"gemma2", "Gemma2ForCausalLM", "gemma2",
       keys({{"attention.sliding_window", "sliding_window"},
             {"attn_logit_softcapping", "attn_logit_softcapping"},
             {"final_logit_softcapping", "final_logit_softcapping"}}),
       names(kGemmaNorms), facts, "partial_rotary_factor", 46},
      {"gemma3", "Gemma3ForCausalLM", "gemma3_text",
       keys({{"attention.sliding_window", "sliding_window"},
             {"final_logit_softcapping", "final_logit_softcapping"},
             {"rope.freq_base_swa", "rope_local_base_freq"}}),
       names(kGemmaNorms, kHeadNorms), facts, "partial_rotary_factor", 62},
  };
}

// Older layouts, whose fused q, k and v lie one behind the other here.
std::vector<GgufArchitecture> gpts() {
  const Keys own{
      {"context_length", "n_positions"},  {"embedding_length", "n_embd"},
      {"block_count", "n_layer"},         {"attention.head_count", "n_head"},
      {"feed_forward_length", "n_inner"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
  std::vector<GgufArchitecture> all{
      {"gpt2", "GPT2LMHeadModel", "gpt2", own, kGpt2Names, {.outputs_first = true}},
      {"gptneox",
       "GPTNeoXForCausalLM",
       "gpt_neox",
       keys({{"attention.layer_norm_epsilon", "layer_norm_eps"},
             {kGgufFrequencyBase, "rotary_emb_base"},
             {"use_parallel_residual", "use_parallel_residual"}}),
       kNeoxNames,
       {.stacked_heads = true},
       "rotary_pct"},
      {"bloom",
       "BloomForCausalLM",
       "bloom",
       {{"context_length", "seq_length"},
        {"embedding_length", "hidden_size"},
        {"block_count", "n_layer"},
        {"attention.head_count", "n_head"},
        {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
       kBloomNames,
       {.stacked_heads = true}},
      {"starcoder", "GPTBigCodeForCausalLM", "gpt_bigcode", own, kGpt2Names, {}},
  };
  all[1].values = {{"rotary_pct", "1"}};
  return all;
}

// With experts whose weights are softmax scores.
std::vector<GgufArchitecture> softmax_experts() {
  std::vector<GgufArchitecture> all{
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
      {"granitemoe", "GraniteMoeForCausalLM", "granitemoe",
       keys(kGraniteKeys,
            {{"expert_count", "num_local_experts"}, {"expert_used_count", "num_experts_per_tok"}}),
       names(kGraniteExperts), interleaved()},
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
  all[5].signs = {{"attn_q.bias", "use_bias"}};
  all.back().values = {{"rope_scaling", R"({"truncate": false})"}};
  for (GgufArchitecture& a : all) {
    a.scores = GgufScores::softmax;
    a.widths = kExpertWidths;
  }
  return all;
}

// With experts whose weights are sigmoids of scores.
std::vector<GgufArchitecture> sigmoid_experts() {
  std::vector<GgufArchitecture> all{
      {"glm4moe",
       "Glm4MoeForCausalLM",
       "glm4_moe",
       keys(kGroupedExpertKeys),
       merged<GgufName>(
           {kPostAttentionNorm, kMoreLayers, names(kExpertNames, kSharedExperts, kHeadNorms)},
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
                 merged<GgufName>(
                     {kExaoneExperts, kMoreLayers, names(kExpertNames, kSharedExperts, kHeadNorms)},
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
  all[0].values = {{"partial_rotary_factor", "1"}, {"num_nextn_predict_layers", "0"}};
  all[0].signs = {{"attn_q.bias", "attention_bias"}, {"attn_q_norm.weight", "use_qk_norm"}};
  for (GgufArchitecture& a : all) {
    a.scores = GgufScores::sigmoid;
    a.widths = kExpertWidths;
  }
  return all;
}

}  // namespace

const std::vector<GgufArchitecture>& gguf_architectures() {
  static const std::vector<GgufArchitecture> all = [] {
    std::vector<GgufArchitecture> list;
    for (auto* rows : {softmax_experts, sigmoid_experts, llama_likes, llama_likes_with_values,
                       convolutions, delta_nets, mambas, gemmas, gpts})
      std::ranges::copy(rows(), std::back_inserter(list));
    return list;
  }();
  return all;
}

}  // namespace sluice
