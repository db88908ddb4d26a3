// Architectures of GGUF with convolutions or recurrences in most layers.
#include "src/base/error.h"
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

const Names kLfm2Names{
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
const Names kDeltaNetNames{
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
const Names kMambaNames{
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
const Names kMamba2Names{
    {"ssm_dt", "backbone.layers.{}.mixer.dt_bias", GgufNameEnd::none},
    {"ssm_a", "backbone.layers.{}.mixer.A_log", GgufNameEnd::column},
    {"ssm_d", "backbone.layers.{}.mixer.D", GgufNameEnd::column},
    {"ssm_norm", "backbone.layers.{}.mixer.norm", GgufNameEnd::vector},
};

// The width that the class makes of intermediate_size.
void undo_lfm2(const DecoderSpec& spec, Json& config) {
  for (const size_t kind : spec.layers) {
    const MlpBranch& mlp = spec.kinds[kind].mlps.front();
    if (!mlp.experts) config["intermediate_size"] = mlp.mlp.width.size;
  }
}

// Most layers have convolutions, and no KV heads.
Rows convolutions() {
  const Keys own{{"attention.layer_norm_rms_epsilon", "norm_eps"},
                 {"shortconv.l_cache", "conv_L_cache"},
                 {"leading_dense_block_count", "num_dense_layers"}};
  Rows all{
      {"lfm2", "Lfm2ForCausalLM", "lfm2", keys(own), names(kLfm2Names), {}},
      {"lfm2moe", "Lfm2MoeForCausalLM", "lfm2_moe", keys(own, kExpertKeys), names(kLfm2Names), {}},
  };
  for (GgufArchitecture& a : all) {
    a.signs = {{"shortconv.conv.bias", "conv_bias"}};
    a.layer_types = {.attending = "full_attention", .others = "conv"};
    a.undo = undo_lfm2;
  }
  all[0].values = {{"block_auto_adjust_ff_dim", "false"}};
  all[1].signs.push_back({"exp_probs_b.bias", "use_expert_bias"});
  all[1].scores = GgufScores::sigmoid;
  all[1].widths = kExpertWidths;
  return all;
}

// Most layers have a gated DeltaNet.
Rows delta_nets() {
  const Keys own{{"ssm.conv_kernel", "linear_conv_kernel_dim"},
                 {"ssm.state_size", "linear_key_head_dim"},
                 {"ssm.group_count", "linear_num_key_heads"},
                 {"ssm.time_step_rank", "linear_num_value_heads"},
                 {"full_attention_interval", "full_attention_interval"}};
  const auto all_names = [](std::string_view qkv) {
    return merged<GgufName>(
        {{{"attn_qkv", qkv}}, kDeltaNetNames, names(kExpertNames, kSharedExpert, kHeadNorms)},
        &GgufName::name);
  };
  const SourceFacts facts{.norms_have_one = true, .negative_rates = true, .tiled_heads = true};
  const Names apart = all_names("model.layers.{}.linear_attn.in_proj_qkv");
  Rows all{
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
    a.flags = {{"attention.recurrent_layers", "layer_types", "linear_attention", "full_attention"}};
    if (a.name != "qwen3next") a.constants = {{"rope.dimension_sections", "[11, 11, 10, 0]"}};
    if (a.name == "qwen35") continue;
    a.scores = GgufScores::softmax;
    a.widths = kExpertWidths;
  }
  return all;
}

// No layer attends.
Rows mambas() {
  const Keys own{{"embedding_length", "hidden_size"},
                 {"block_count", "num_hidden_layers"},
                 {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
                 {"ssm.conv_kernel", "conv_kernel"},
                 {"ssm.state_size", "state_size"}};
  const Keys channels{{"ssm.inner_size", "intermediate_size"},
                      {"ssm.time_step_rank", "time_step_rank"}};
  const Keys heads{{"ssm.time_step_rank", "num_heads"}, {"ssm.group_count", "n_groups"}};
  const SourceFacts facts{.negative_rates = true};
  Rows all{
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
  all[0].constants = {{all[0].only_with, "true"}};
  all[2].quotients = {{"head_dim", "ssm.inner_size", "ssm.time_step_rank"}};
  return all;
}

const Names kHybridNames{
    {"ssm_in", "model.layers.{}.mamba.in_proj"},
    {"ssm_conv1d", "model.layers.{}.mamba.conv1d", GgufNameEnd::convolution},
    {"ssm_dt", "model.layers.{}.mamba.dt_bias", GgufNameEnd::none},
    {"ssm_a", "model.layers.{}.mamba.A_log", GgufNameEnd::column},
    {"ssm_d", "model.layers.{}.mamba.D", GgufNameEnd::column},
    {"ssm_norm", "model.layers.{}.mamba.norm", GgufNameEnd::vector},
    {"ssm_out", "model.layers.{}.mamba.out_proj"},
};
// Names of scans of channels.
const Names kChannelNames{
    {"ssm_x", "model.layers.{}.mamba.x_proj"},
    {"ssm_dt", "model.layers.{}.mamba.dt_proj"},
    {"ssm_a", "model.layers.{}.mamba.A_log", GgufNameEnd::none},
    {"ssm_d", "model.layers.{}.mamba.D", GgufNameEnd::none},
    {"ssm_dt_norm", "model.layers.{}.mamba.dt_layernorm"},
    {"ssm_b_norm", "model.layers.{}.mamba.b_layernorm"},
    {"ssm_c_norm", "model.layers.{}.mamba.c_layernorm"},
};
const Names kFeedForwardNames{
    {"output_norm", "model.final_layernorm"},
    {"ffn_norm", "model.layers.{}.pre_ff_layernorm"},
    {"ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
    {"ffn_up", "model.layers.{}.feed_forward.up_proj"},
    {"ffn_down", "model.layers.{}.feed_forward.down_proj"},
    {"ffn_gate_inp", "model.layers.{}.feed_forward.router"},
    {"ffn_gate_exps", "model.layers.{}.feed_forward.experts.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.feed_forward.experts.up_proj"},
    {"ffn_down_exps", "model.layers.{}.feed_forward.experts.down_proj"},
};
const Names kSharedMlpNames{
    {"ffn_gate", "model.layers.{}.shared_mlp.gate_proj"},
    {"ffn_up", "model.layers.{}.shared_mlp.up_proj"},
    {"ffn_down", "model.layers.{}.shared_mlp.output_linear"},
};
const Keys kHybridKeys{
    {"ssm.conv_kernel", "mamba_d_conv"},
    {"ssm.state_size", "mamba_d_state"},
};
const Keys kHeadKeys{
    {"ssm.time_step_rank", "mamba_n_heads"},
    {"ssm.group_count", "mamba_n_groups"},
    {"ssm.inner_size", "mamba_d_ssm"},
};

Names hybrid_names(const Names& own, const Names& more = {}) {
  return merged<GgufName>({own, more, kHybridNames, kCommonNames}, &GgufName::name);
}

// With Mamba-2 beside attention, or in its place in most layers.
Rows mamba2_hybrids() {
  const SourceFacts facts{.negative_rates = true};
  const SourceFacts granite{.interleaved_rope = true, .negative_rates = true, .parts_apart = true};
  const Keys own = merged<GgufKey>({kHybridKeys, kHeadKeys}, &GgufKey::key);
  Rows all{
      {"falcon-h1", "FalconH1ForCausalLM", "falcon_h1", keys(own),
       hybrid_names({{"ffn_norm", "model.layers.{}.pre_ff_layernorm", GgufNameEnd::weight}},
                    kFeedForwardNames),
       facts},
      {"granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
       keys(merged<GgufKey>({kGraniteKeys, kGraniteExpertKeys}, &GgufKey::key), own),
       hybrid_names(kSharedMlpNames, kGraniteExperts), granite},
  };
  for (GgufArchitecture& a : all) {
    a.signs = {{"ssm_conv1d.bias", "mamba_conv_bias"}, {"ssm_in.bias", "mamba_proj_bias"}};
    a.quotients = {{"mamba_d_head", "ssm.inner_size", "ssm.time_step_rank"}};
  }
  all[0].values = {{"mamba_norm_before_gate", "false"}};
  all[0].signs.push_back({"ssm_norm.weight", "mamba_rms_norm"});
  all[0].signs.push_back({"ssm_out.bias", "projectors_bias"});
  all[0].signs.push_back({"ffn_up.bias", "mlp_bias"});
  all[1].scores = GgufScores::softmax;
  all[1].layer_types = {.attending = "attention", .others = "mamba"};
  // The converter makes neighbours of the two halves of a head, of which Bamba rotates one.
  all[1].derive = [](const JsonFields& fields, Json&) {
    if (fields.boolean_or("granitehybrid.rope.scaling.finetuned", false))
      fail(ErrorKind::refused,
           "{}: granitehybrid.rope.scaling.finetuned is true, as Bamba's is, which is not "
           "supported; give the model as safetensors",
           fields.where());
  };
  return all;
}

const Names kNemotronNames{
    {"ssm_in", "backbone.layers.{}.mixer.in_proj"},
    {"attn_q", "backbone.layers.{}.mixer.q_proj"},
    {"attn_k", "backbone.layers.{}.mixer.k_proj"},
    {"attn_v", "backbone.layers.{}.mixer.v_proj"},
    {"attn_output", "backbone.layers.{}.mixer.o_proj"},
    {"ffn_up", "backbone.layers.{}.mixer.up_proj"},
    {"ffn_down", "backbone.layers.{}.mixer.down_proj"},
    {"ffn_gate_inp", "backbone.layers.{}.mixer.gate"},
    {"exp_probs_b", "backbone.layers.{}.mixer.gate.e_score_correction_bias", GgufNameEnd::none},
    {"ffn_up_exps", "backbone.layers.{}.mixer.experts.up_proj"},
    {"ffn_down_exps", "backbone.layers.{}.mixer.experts.down_proj"},
    {"ffn_up_shexp", "backbone.layers.{}.mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "backbone.layers.{}.mixer.shared_experts.down_proj"},
    {"ffn_latent_down", "backbone.layers.{}.mixer.fc1_latent_proj"},
    {"ffn_latent_up", "backbone.layers.{}.mixer.fc2_latent_proj"},
};

// A layer is a mixer or an MLP.
Rows nemotrons() {
  const Keys own{{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                 {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
                 {"ssm.conv_kernel", "conv_kernel"},
                 {"ssm.state_size", "ssm_state_size"},
                 {"ssm.time_step_rank", "mamba_num_heads"},
                 {"ssm.group_count", "n_groups"},
                 {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
                 {"moe_latent_size", "moe_latent_size"}};
  const Names all_names =
      merged<GgufName>({kNemotronNames, kMamba2Names, kMambaNames}, &GgufName::name);
  const SourceFacts facts{.negative_rates = true};
  Rows all{{"nemotron_h", "NemotronHForCausalLM", "nemotron_h", keys(own), all_names, facts},
           {"nemotron_h_moe", "NemotronHForCausalLM", "nemotron_h", keys(own, kGroupedExpertKeys),
            all_names, facts}};
  for (GgufArchitecture& a : all) {
    a.signs = {{"ssm_conv1d.bias", "use_conv_bias"},
               {"ssm_in.bias", "use_bias"},
               {"ffn_up.bias", "mlp_bias"}};
    a.quotients = {{"mamba_head_dim", "ssm.inner_size", "ssm.time_step_rank"}};
    a.rotated_key = {};
    a.layer_types = {.attending = "attention",
                     .others = "mamba",
                     .mlp = a.name == "nemotron_h" ? "mlp" : "moe",
                     .config_key = "layers_block_type"};
  }
  all[1].scores = GgufScores::sigmoid;
  all[1].values = {{"n_group", "1"}, {"topk_group", "1"}};
  return all;
}

Rows jambas() {
  Rows all{{"jamba",
            "JambaForCausalLM",
            "jamba",
            keys({{"ssm.time_step_rank", "mamba_dt_rank"}, {"expert_count", "num_experts"}},
                 merged<GgufKey>({kHybridKeys, kExpertKeys}, &GgufKey::key)),
            hybrid_names(kChannelNames, kFeedForwardNames),
            {.negative_rates = true}}};
  all[0].signs = {{"ssm_conv1d.bias", "mamba_conv_bias"}, {"ssm_in.bias", "mamba_proj_bias"}};
  all[0].quotients = {{"mamba_expand", "ssm.inner_size", "embedding_length"}};
  all[0].layer_types = {.attending = {},
                        .others = {},
                        .config_key = "attn_layer_period",
                        .offset_key = "attn_layer_offset"};
  all[0].scores = GgufScores::softmax;
  return all;
}

const Names kKimiNames{
    {"ssm_conv1d_q", "model.layers.{}.self_attn.q_conv1d", GgufNameEnd::filters},
    {"ssm_conv1d_k", "model.layers.{}.self_attn.k_conv1d", GgufNameEnd::filters},
    {"ssm_conv1d_v", "model.layers.{}.self_attn.v_conv1d", GgufNameEnd::filters},
    {"ssm_f_a", "model.layers.{}.self_attn.f_a_proj"},
    {"ssm_f_b", "model.layers.{}.self_attn.f_b_proj"},
    {"ssm_g_a", "model.layers.{}.self_attn.g_a_proj"},
    {"ssm_g_b", "model.layers.{}.self_attn.g_b_proj"},
    {"ssm_beta", "model.layers.{}.self_attn.b_proj"},
    {"ssm_a", "model.layers.{}.self_attn.A_log", GgufNameEnd::column},
    {"ssm_dt", "model.layers.{}.self_attn.dt_bias", GgufNameEnd::none},
    {"ssm_norm", "model.layers.{}.self_attn.o_norm"},
    {"exp_probs_b", "model.layers.{}.block_sparse_moe.gate.e_score_correction_bias",
     GgufNameEnd::none},
    {"ffn_gate_shexp", "model.layers.{}.block_sparse_moe.shared_experts.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.block_sparse_moe.shared_experts.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.block_sparse_moe.shared_experts.down_proj"},
};

// With Kimi Delta Attention in most layers, and latent attention in the others.
Rows kimis() {
  GgufArchitecture row{
      .name = "kimi-linear",
      .architecture = "KimiLinearForCausalLM",
      .model_type = "kimi_linear",
      .keys = {{"context_length", "model_max_length"},
               {"embedding_length", "hidden_size"},
               {"block_count", "num_hidden_layers"},
               {"feed_forward_length", "intermediate_size"},
               {"attention.head_count", "num_attention_heads"},
               {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
               {"rope.dimension_count", "qk_rope_head_dim"},
               {"attention.q_lora_rank", "q_lora_rank"},
               {"attention.kv_lora_rank", "kv_lora_rank"},
               {"attention.value_length_mla", "v_head_dim"},
               {"ssm.conv_kernel", "linear_conv_kernel_dim"},
               {"kda.head_dim", "linear_head_dim"},
               {"expert_count", "num_experts"},
               {"expert_used_count", "num_experts_per_token"},
               {"expert_feed_forward_length", "moe_intermediate_size"},
               {"expert_shared_count", "num_shared_experts"},
               {"expert_weights_scale", "routed_scaling_factor"},
               {"expert_group_count", "num_expert_group"},
               {"expert_group_used_count", "topk_group"},
               {"leading_dense_block_count", "first_k_dense_replace"}},
      .names = merged<GgufName>({kKimiNames, kLatentNames, kMixtralNames, kCommonNames},
                                &GgufName::name),
      .facts = {.negative_rates = true, .latent_parts = true},
      .rotated_key = {}};
  row.values = {{"q_lora_rank", "null"}, {"moe_renormalize", "true"}};
  row.widths = {{"ssm_beta.weight", "linear_num_heads"}};
  row.differences = {{"qk_nope_head_dim", "attention.key_length_mla", "rope.dimension_count"}};
  row.layer_types = {.attending = "full_attention", .others = "linear_attention"};
  row.scores = GgufScores::sigmoid;
  return {row};
}

}  // namespace

Rows state_decoders() {
  Rows list;
  for (auto* rows : {convolutions, delta_nets, mambas, mamba2_hybrids, nemotrons, jambas, kimis})
    std::ranges::copy(rows(), std::back_inserter(list));
  return list;
}

}  // namespace sluice::gguf_rows
