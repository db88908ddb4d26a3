// Architectures of GGUF with latent attention.
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

// A head's sizes are those of attention over latent vectors, unless keys say that they are not.
const Keys kLatentKeys{
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count", "num_key_value_heads"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {kGgufFrequencyBase, "rope_theta"},
    {"rope.dimension_count", "qk_rope_head_dim"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.value_length", "v_head_dim"},
    {"attention.value_length_mla", "v_head_dim"},
};
const Keys kIndexerKeys{
    {"attention.indexer.head_count", "index_n_heads"},
    {"attention.indexer.key_length", "index_head_dim"},
    {"attention.indexer.top_k", "index_topk"},
};
const Names kIndexerNames{
    {"indexer.attn_q_b", "model.layers.{}.self_attn.indexer.wq_b"},
    {"indexer.attn_k", "model.layers.{}.self_attn.indexer.wk"},
    {"indexer.k_norm", "model.layers.{}.self_attn.indexer.k_norm"},
    {"indexer.proj", "model.layers.{}.self_attn.indexer.weights_proj"},
};

Keys latent_keys(const Keys& more) { return merged<GgufKey>({kLatentKeys, more}, &GgufKey::key); }
Names latent_names(const Names& more = {}) {
  return merged<GgufName>({kLatentNames, more, names(kExpertNames, kSharedExperts)},
                          &GgufName::name);
}

// Values of absent keys, which are others in the class.
const std::vector<GgufValue> kValues{
    {"q_lora_rank", "null"},     {"n_group", "1"},
    {"topk_group", "1"},         {"routed_scaling_factor", "1.0"},
    {"norm_topk_prob", "false"},
};

void derive_shared_indexers(const JsonFields& fields, Json& config) {
  // Files of GLM-5.2 and later have no types; llama.cpp knows them by their context.
  if (config.contains("indexer_types") ||
      size_in(config, "max_position_embeddings", fields) < 1 << 20)
    return;
  config["index_topk_freq"] = 4;
  config["index_skip_topk_offset"] = 3;
}

// Heads of layers with a window, and of the others. Norms have the factors of vectors of lower
// rank.
void derive_dots3(const JsonFields&, Json& config) {
  constexpr const char *kHeads = "heads", *kTypes = "layer_types";
  config["apply_mla_qkv_lora_rescale"] = false;
  if (!config.contains(kHeads) || !config.contains(kTypes)) return;
  const Json heads = config[kHeads], types = config[kTypes];
  for (size_t l = 0; l < heads.size() && l < types.size(); ++l)
    config[types[l] == "sliding_attention" ? "swa_num_attention_heads" : "num_attention_heads"] =
        static_cast<int64_t>(heads[l].get<double>());
  config["num_key_value_heads"] = config["num_attention_heads"];
  config.erase(kHeads);
}

GgufArchitecture dots3() {
  const Keys own{{"context_length", "max_position_embeddings"},
                 {"embedding_length", "hidden_size"},
                 {"block_count", "num_hidden_layers"},
                 {"feed_forward_length", "intermediate_size"},
                 {"attention.head_count", "num_attention_heads"},
                 {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                 {kGgufFrequencyBase, "rope_theta"},
                 {"rope.freq_base_swa", "swa_rope_theta"},
                 {"rope.dimension_count", "qk_rope_head_dim"},
                 {"rope.dimension_count", "swa_qk_rope_head_dim"},
                 {"attention.q_lora_rank", "q_lora_rank"},
                 {"attention.q_lora_rank", "swa_q_lora_rank"},
                 {"attention.kv_lora_rank", "kv_lora_rank"},
                 {"attention.kv_lora_rank_swa", "swa_kv_lora_rank"},
                 {"attention.key_length_mla", "head_dim"},
                 {"attention.key_length_mla_swa", "swa_head_dim"},
                 {"attention.value_length_mla", "v_head_dim"},
                 {"attention.value_length_mla_swa", "swa_v_head_dim"},
                 {"attention.sliding_window", "sliding_window"},
                 {"expert_feed_forward_length", "shared_experts_intermediate_size"}};
  Keys all = own;
  for (const Keys& more : {kIndexerKeys, kGroupedExpertKeys})
    std::ranges::copy(more, std::back_inserter(all));
  const Names more{{"attn_k_norm", "model.layers.{}.self_attn.k_rope_only_layernorm"},
                   {"attn_gate", "model.layers.{}.self_attn.g_proj"}};
  GgufArchitecture row{
      .name = "dots3note",
      .architecture = "Dots3NoteForCausalLM",
      .model_type = "dots3_note_text",
      .keys = all,
      .names = latent_names(merged<GgufName>({more, kIndexerNames}, &GgufName::name)),
      .facts = {.latent_parts = true},
      .rotated_key = {}};
  row.values = {{"n_group", "1"},
                {"topk_group", "1"},
                {"routed_scaling_factor", "1.0"},
                {"norm_topk_prob", "false"}};
  row.lists = {{"attention.head_count", "heads"}};
  row.differences = {
      {"qk_nope_head_dim", "attention.key_length_mla", "rope.dimension_count"},
      {"swa_qk_nope_head_dim", "attention.key_length_mla_swa", "rope.dimension_count"}};
  row.scores = GgufScores::sigmoid;
  row.derive = derive_dots3;
  return row;
}

const std::vector<GgufDifference> kSizesWithoutRope{
    {"qk_nope_head_dim", "attention.key_length", "rope.dimension_count"},
    {"qk_nope_head_dim", "attention.key_length_mla", "rope.dimension_count"}};

}  // namespace

Rows latent_decoders() {
  const Keys indexed =
      latent_keys(merged<GgufKey>({kIndexerKeys, kGroupedExpertKeys}, &GgufKey::key));
  const SourceFacts parts{.latent_parts = true};
  const Keys grouped = latent_keys(kGroupedExpertKeys);
  Rows all{
      {"mistral4", "Mistral4ForCausalLM", "mistral4", grouped, latent_names(), parts},
      {"deepseek2", "Mistral4ForCausalLM", "mistral4", grouped, latent_names(), parts},  // Large 3
      {"deepseek2", "DeepseekV3ForCausalLM", "deepseek_v3", grouped, latent_names(), parts},
      {"deepseek2", "DeepseekV2ForCausalLM", "deepseek_v2", grouped, latent_names(), parts},
      {"deepseek32", "DeepseekV32ForCausalLM", "deepseek_v32", indexed, latent_names(kIndexerNames),
       parts},
      {"glm-dsa", "GlmMoeDsaForCausalLM", "glm_moe_dsa", indexed, latent_names(kIndexerNames),
       parts},
  };
  for (GgufArchitecture& a : all) {
    a.values = kValues;
    a.scores = a.model_type == "mistral4" || a.model_type == "deepseek_v2" ? GgufScores::softmax
                                                                           : GgufScores::sigmoid;
    a.log_multiplier = 0.1;
  }
  all[1].only_with = "attention.temperature_scale";
  all[2].only_with_tensor = "exp_probs_b.bias";
  all[3].values.push_back({"topk_method", R"("group_limited_greedy")"});
  all[5].flags = {{"attention.indexer.types", "indexer_types", "full", "shared"}};
  all[5].derive = derive_shared_indexers;
  all.push_back(
      {"minicpm3", "MiniCPM3ForCausalLM", "minicpm3", latent_keys({}), latent_names(), {}});
  all.push_back({"plm", "PLMForCausalLM", "plm", latent_keys({}), latent_names(), {}});
  for (GgufArchitecture& a : all) {
    a.rotated_key = {};
    a.differences = kSizesWithoutRope;
    if (!a.facts.latent_parts) a.differences.pop_back();
  }
  all.push_back(dots3());
  return all;
}

}  // namespace sluice::gguf_rows
