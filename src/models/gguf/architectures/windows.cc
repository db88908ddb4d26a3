// Architectures of GGUF whose layers with a window have a rope, or heads, of their own.
#include <string>
#include <utility>

#include "src/models/config.h"
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

constexpr const char *kRopes = "rope_parameters", *kFull = "full_attention",
                     *kSliding = "sliding_attention", *kTypes = "layer_types",
                     *kHeadsOfLayers = "num_attention_heads_per_layer";

const Keys kRopeKeys{
    {"attention.sliding_window", "sliding_window"},
    {kGgufFrequencyBase, "rope_parameters.full_attention.rope_theta"},
    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta"},
};
const std::vector<GgufValue> kRopeValues{
    {"rope_parameters.full_attention.rope_type", R"("default")"},
    {"rope_parameters.sliding_attention.rope_type", R"("default")"}};

// A scaling is that of layers without a window.
void scale_full_layers(Json& config) {
  if (!config.contains("rope_scaling")) return;
  config[kRopes][kFull].update(config["rope_scaling"]);
  config.erase("rope_scaling");
}

const Names kLagunaNames{
    {"attn_gate", "model.layers.{}.self_attn.g_proj"},
    {"exp_probs_b", "model.layers.{}.mlp.experts.e_score_correction_bias", GgufNameEnd::none},
    {"ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
};

// Layers with experts, from some layer on.
void set_sparse(const JsonFields& fields, const char* key, Json& config) {
  const int64_t dense = fields.integer_or(key, 0, kMaxLayers, 0);
  Json& types = config["mlp_layer_types"] = Json::array();
  for (int64_t l = 0; l < size_in(config, "num_hidden_layers", fields); ++l)
    types.push_back(l < dense ? "dense" : "sparse");
}

// Every fourth layer, from the first on, has no window where no array says which ones have it.
// Gates are of heads where there are as many of them.
void derive_laguna(const JsonFields& fields, Json& config) {
  constexpr int64_t kFullEach = 4;
  constexpr const char* kGates = "gates";
  scale_full_layers(config);
  set_sparse(fields, "laguna.leading_dense_block_count", config);
  if (config.contains("sliding_window") && !config.contains(kTypes)) {
    for (int64_t l = 0; l < size_in(config, "num_hidden_layers", fields); ++l)
      config[kTypes].push_back(l % kFullEach == 0 ? kFull : kSliding);
  }
  const bool of_heads =
      size_in(config, kGates, fields) == size_in(config, "num_attention_heads", fields);
  config["gating"] = of_heads ? "per-head" : "per-element";
  config.erase(kGates);
}

GgufArchitecture laguna() {
  GgufArchitecture row{
      .name = "laguna",
      .architecture = "LagunaForCausalLM",
      .model_type = "laguna",
      .keys = keys(
          kRopeKeys,
          merged<GgufKey>({{{"expert_weights_scale", "moe_routed_scaling_factor"}}, kExpertKeys},
                          &GgufKey::key)),
      .names = names(kLagunaNames, kExpertNames, kHeadNorms),
      .facts = {},
      .rotated_key = "rope_parameters.full_attention.partial_rotary_factor"};
  row.rotated_windows_key = "rope_parameters.sliding_attention.partial_rotary_factor";
  row.values = kRopeValues;
  row.lists = {{"attention.head_count", kHeadsOfLayers}};
  row.widths = {{"attn_gate.weight", "gates"}};
  row.scores = GgufScores::sigmoid;
  row.derive = derive_laguna;
  return row;
}

GgufArchitecture mellum() {
  GgufArchitecture row{.name = "mellum",
                       .architecture = "MellumForCausalLM",
                       .model_type = "mellum",
                       .keys = keys(kRopeKeys, kExpertKeys),
                       .names = names(kExpertNames, kHeadNorms),
                       .facts = {},
                       .rotated_key = {}};
  row.values = kRopeValues;
  row.widths = kExpertWidths;
  row.scores = GgufScores::softmax;
  row.derive = [](const JsonFields&, Json& config) { scale_full_layers(config); };
  return row;
}

const Names kSinks{{"attn_sinks", "model.layers.{}.self_attn.sinks", GgufNameEnd::none}};
const Names kGraniteSwaExperts{
    {"ffn_gate_inp", "model.layers.{}.block_sparse_moe.router"},
    {"ffn_gate_up_exps.weight", "model.layers.{}.block_sparse_moe.experts.gate_up_proj",
     GgufNameEnd::none},
    {"ffn_down_exps.weight", "model.layers.{}.block_sparse_moe.experts.down_proj",
     GgufNameEnd::none},
    {"ffn_up_shexp", "model.layers.{}.shared_mlp.input_linear"},
    {"ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"},
};

// Layers that do not rotate have a base of 0 in config.json.
void derive_granite_swa(const JsonFields&, Json& config) {
  constexpr const char* kRotates = "rope_pattern";
  if (!config.contains(kRotates)) return;
  Json& thetas = config["layer_rope_theta"] = Json::array();
  for (const Json& rotates : config[kRotates])
    thetas.push_back(rotates != 0 ? config["rope_theta"] : Json(0));
  config.erase(kRotates);
}

Rows granites_with_windows() {
  Rows all{{"granite_swa", "GraniteMoeSWAForCausalLM", "granitemoe_swa",
            keys(merged<GgufKey>({kGraniteKeys, kGraniteExpertKeys}, &GgufKey::key),
                 {{"attention.sliding_window", "sliding_window"}}),
            names(kSinks, kGraniteSwaExperts), interleaved()},
           {"granite_swa", "GraniteSWAForCausalLM", "granite_swa",
            keys(kGraniteKeys, {{"attention.sliding_window", "sliding_window"}}), names(kSinks),
            interleaved()}};
  all[0].only_with = "expert_count";
  all[0].scores = GgufScores::softmax;
  for (GgufArchitecture& a : all) {
    a.lists = {{"attention.rope_pattern", "rope_pattern"}};
    a.derive = derive_granite_swa;
  }
  return all;
}

const Names kStepNames{
    {"attn_gate", "model.layers.{}.self_attn.g_proj"},
    {"ffn_gate_inp", "model.layers.{}.moe.gate"},
    {"ffn_gate_exps", "model.layers.{}.moe.gate_proj"},
    {"ffn_up_exps", "model.layers.{}.moe.up_proj"},
    {"ffn_down_exps", "model.layers.{}.moe.down_proj"},
    {"exp_probs_b", "model.layers.{}.moe.router_bias", GgufNameEnd::none},
    {"ffn_gate_shexp", "model.layers.{}.share_expert.gate_proj"},
    {"ffn_up_shexp", "model.layers.{}.share_expert.up_proj"},
    {"ffn_down_shexp", "model.layers.{}.share_expert.down_proj"},
};

// Half of a head is rotated in layers without a window.
void derive_step(const JsonFields& fields, Json& config) {
  scale_full_layers(config);
  set_sparse(fields, "step35.leading_dense_block_count", config);
  config[kRopes][kFull]["partial_rotary_factor"] = 0.5;
  if (!config.contains(kHeadsOfLayers) || !config.contains(kTypes)) return;
  const Json heads = config[kHeadsOfLayers], types = config[kTypes];
  for (size_t l = 0; l < heads.size() && l < types.size(); ++l)
    config[types[l] == kFull ? "num_attention_heads" : "num_sliding_attention_heads"] =
        static_cast<int64_t>(heads[l].get<double>());
  config.erase(kHeadsOfLayers);
}

GgufArchitecture step() {
  GgufArchitecture row{
      .name = "step35",
      .architecture = "Step3p5ForCausalLM",
      .model_type = "step3p5",
      .keys = keys(kRopeKeys, {{"expert_count", "n_routed_experts"},
                               {"expert_used_count", "num_experts_per_tok"},
                               {"expert_feed_forward_length", "moe_intermediate_size"},
                               {"expert_shared_feed_forward_length", "share_expert_dim"},
                               {"expert_weights_scale", "moe_router_scaling_factor"},
                               {"attention.head_count_kv", "num_attention_groups"}}),
      .names = names(kStepNames, kHeadNorms),
      .facts = {.norms_have_one = true},
      .rotated_key = {}};
  row.values = kRopeValues;
  row.lists = {{"attention.head_count", kHeadsOfLayers},
               {"swiglu_clamp_exp", "swiglu_limits"},
               {"swiglu_clamp_shexp", "swiglu_limits_shared"}};
  row.scores = GgufScores::sigmoid;
  row.derive = derive_step;
  return row;
}

}  // namespace

Rows window_decoders() {
  Rows all = granites_with_windows();
  all.push_back(laguna());
  all.push_back(mellum());
  all.push_back(step());
  return all;
}

}  // namespace sluice::gguf_rows
