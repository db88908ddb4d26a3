// Gemma, as GGUF has it.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

const Names kGemmaNorms{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

const Names kGemma4Names{
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"inp_gate", "model.layers.{}.per_layer_input_gate"},
    {"proj", "model.layers.{}.per_layer_projection"},
    {"post_norm", "model.layers.{}.post_per_layer_input_norm"},
    {"layer_output_scale.weight", "model.layers.{}.layer_scalar", GgufNameEnd::none},
    {"ffn_gate_inp", "model.layers.{}.router.proj"},
    {"ffn_gate_inp.scale", "model.layers.{}.router.scale", GgufNameEnd::none},
    {"ffn_gate_up_exps.weight", "model.layers.{}.experts.gate_up_proj", GgufNameEnd::none},
    {"ffn_down_exps.weight", "model.layers.{}.experts.down_proj", GgufNameEnd::none},
    {"ffn_down_exps.scale", "model.layers.{}.router.per_expert_scale", GgufNameEnd::none},
    {"pre_ffw_norm_2", "model.layers.{}.pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "model.layers.{}.post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "model.layers.{}.post_feedforward_layernorm_2"},
};

// Its norms multiply by weights as they are; the factors of frequencies are those of layers without
// a window, and stop most of these.
GgufArchitecture gemma4() {
  GgufArchitecture row{
      .name = "gemma4",
      .architecture = "Gemma4ForCausalLM",
      .model_type = "gemma4_text",
      .keys = keys({{"attention.sliding_window", "sliding_window"},
                    {"attention.key_length", "head_dim"},
                    {"attention.key_length_swa", "head_dim"},
                    {"attention.shared_kv_layers", "num_kv_shared_layers"},
                    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
                    {"final_logit_softcapping", "final_logit_softcapping"},
                    {"expert_count", "num_experts"},
                    {"expert_used_count", "top_k_experts"},
                    {"expert_feed_forward_length", "moe_intermediate_size"},
                    {kGgufFrequencyBase, "rope_parameters.full_attention.rope_theta"},
                    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta"}}),
      .names = names(kGemma4Names, kGemmaNorms, kHeadNorms),
      .facts = {.factored_rope = 1},
      .rotated_key = {}};
  row.values = {{"rope_parameters.full_attention.rope_type", R"("default")"},
                {"rope_parameters.sliding_attention.rope_type", R"("default")"},
                {"hidden_size_per_layer_input", "0"}};
  row.signs = {{"ffn_gate_inp.weight", "enable_moe_block"},
               {"attn_k.weight", "attention_k_eq_v", "attn_v.weight"}};
  row.widths = {{"per_layer_token_embd.weight", "vocab_size_per_layer_input"}};
  row.scores = GgufScores::softmax;
  row.layer_config = row.names_windows = true;
  return row;
}

const Names kGemma3nNames{
    {"altup_proj", {}, GgufNameEnd::slices},
    {"altup_proj.{e}", "model.altup_projections.{e}"},
    {"altup_unembd_proj", {}, GgufNameEnd::slices},
    {"altup_unembd_proj.{e}", "model.altup_unembed_projections.{e}"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"inp_gate", "model.layers.{}.per_layer_input_gate"},
    {"proj", "model.layers.{}.per_layer_projection"},
    {"post_norm", "model.layers.{}.post_per_layer_input_norm"},
    {"laurel_l", "model.layers.{}.laurel.linear_left"},
    {"laurel_r", "model.layers.{}.laurel.linear_right"},
    {"laurel_post_norm", "model.layers.{}.laurel.post_laurel_norm"},
    {"altup_predict_coef", "model.layers.{}.altup.prediction_coefs"},
    {"altup_correct_coef", "model.layers.{}.altup.correction_coefs"},
    {"altup_correct_scale.weight", "model.layers.{}.altup.correct_output_scale", GgufNameEnd::none},
    {"altup_router", "model.layers.{}.altup.modality_router"},
    {"altup_router_norm", "model.layers.{}.altup.router_norm"},
};

// The file has deviations above the mean that activations are kept from, config.json the share of
// those that are not.
void derive_gemma3n(const JsonFields&, Json& config) {
  constexpr const char* kShares = "activation_sparsity_pattern";
  if (!config.contains(kShares)) return;
  constexpr double kDigits = 1e6;  // config.json has few, and the file float32
  for (Json& share : config[kShares])
    share = std::round(std::erfc(-share.get<double>() * M_SQRT1_2) / 2 * kDigits) / kDigits;
}

// The deviation above the mean that a share of a normal distribution is below.
double deviation_of(double share) {
  if (share <= 0) return -std::numeric_limits<double>::infinity();
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle * M_SQRT1_2) / 2 < share ? low : high) = middle;
  }
  return low;
}

void undo_gemma3n(const DecoderSpec& spec, Json& config) {
  constexpr const char *kShares = "activation_sparsity_pattern", *kWidths = "intermediate_size";
  const size_t layers = spec.layers.size();
  if (config.contains(kShares) && config[kShares].is_array())
    for (Json& share : config[kShares]) share = deviation_of(share.get<double>());
  if (config.contains(kWidths) && config[kWidths].is_number())
    config[kWidths] = std::vector<int64_t>(layers, config[kWidths].get<int64_t>());
}

// Its norms multiply by weights as they are.
GgufArchitecture gemma3n() {
  GgufArchitecture row{
      .name = "gemma3n",
      .architecture = "Gemma3nForCausalLM",
      .model_type = "gemma3n_text",
      .keys = keys({{"attention.sliding_window", "sliding_window"},
                    {"attention.shared_kv_layers", "num_kv_shared_layers"},
                    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
                    {"final_logit_softcapping", "final_logit_softcapping"},
                    {"rope.freq_base_swa", "rope_local_base_freq"},
                    {"altup.active_idx", "altup_active_idx"},
                    {"altup.num_inputs", "altup_num_inputs"}}),
      .names = names(kGemma3nNames, kGemmaNorms, kHeadNorms),
      .facts = {},
      .rotated_key = {}};
  row.lists = {{"feed_forward_length", "intermediate_size"},
               {"activation_sparsity_scale", "activation_sparsity_pattern"}};
  row.widths = {{"per_layer_token_embd.weight", "vocab_size_per_layer_input"},
                {"laurel_l.weight", "laurel_rank"}};
  row.derive = derive_gemma3n;
  row.undo = undo_gemma3n;
  row.names_windows = true;
  return row;
}

// Ollama's own files have other keys for the bases, or none, and lack the factor that stretches the
// larger models; that of the smallest one has a cap of logits, which the model has not.
void complete_ollamas(const JsonFields& fields, Json& config) {
  constexpr int64_t kSmallest = 26, kStretched[]{34, 48, 62};
  constexpr double kBase = 1000000, kFactor = 8;
  constexpr const char* kOwn[]{"gemma3.rope.local.freq_base", "gemma3.rope.global.freq_base",
                               "gemma3.vision.block_count"};
  const bool is_ollamas =
      std::ranges::any_of(kOwn, [&](const char* key) { return fields.has(key); });
  if (!is_ollamas || fields.has("gemma3.rope.freq_base")) return;
  config["rope_theta"] = fields.number_or("gemma3.rope.global.freq_base", kBase);
  const int64_t layers = size_in(config, "num_hidden_layers", fields);
  if (layers == kSmallest) config["final_logit_softcapping"] = nullptr;
  if (std::ranges::find(kStretched, layers) != std::end(kStretched) &&
      !config.contains("rope_scaling"))
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", kFactor}};
}

void derive_gemma3(const JsonFields& fields, Json& config) {
  constexpr const char* kWindow = "sliding_window";
  complete_ollamas(fields, config);
  if (!config.contains(kWindow) || !config[kWindow].is_null()) return;
  config.erase(kWindow);  // no layer has one
  const auto layers = static_cast<size_t>(size_in(config, "num_hidden_layers", fields));
  config["layer_types"] = std::vector<std::string>(layers, "full_attention");
}

GgufArchitecture gemma3() {
  GgufArchitecture row{.name = "gemma3",
                       .architecture = "Gemma3ForCausalLM",
                       .model_type = "gemma3_text",
                       .keys = keys({{"attention.sliding_window", "sliding_window"},
                                     {"final_logit_softcapping", "final_logit_softcapping"},
                                     {"rope.local.freq_base", "rope_local_base_freq"},
                                     {"rope.freq_base_swa", "rope_local_base_freq"}}),
                       .names = names(kGemmaNorms, kHeadNorms),
                       .facts = {.norms_have_one = true}};
  row.deepest = 62;
  row.derive = derive_gemma3;
  return row;
}

}  // namespace

Rows gemmas() {
  const SourceFacts facts{.norms_have_one = true};
  return {
      {"gemma", "GemmaForCausalLM", "gemma", kCommonKeys, kCommonNames, facts},
      {"gemma2", "Gemma2ForCausalLM", "gemma2",
       keys({{"attention.sliding_window", "sliding_window"},
             {"attn_logit_softcapping", "attn_logit_softcapping"},
             {"final_logit_softcapping", "final_logit_softcapping"}}),
       names(kGemmaNorms), facts, "partial_rotary_factor", 46},
      gemma3(),
      gemma3n(),
      gemma4(),
  };
}

}  // namespace sluice::gguf_rows
