// Ernie4_5ForCausalLM (ERNIE 4.5): Llama's layout, where neighbours are rotated together; but not
// in the language model of PaddleOCR-VL. Ernie4_5_MoeForCausalLM: the same with experts in some
// layers, beside a shared one.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kErnieDefaults{.vocab_size = 103424,
                                        .hidden_size = 1024,
                                        .intermediate_size = 3072,
                                        .num_hidden_layers = 18,
                                        .num_attention_heads = 16,
                                        .num_key_value_heads = 2,
                                        .head_dim = 128,
                                        .max_position_embeddings = 131072,
                                        .rms_norm_eps = 1e-5,
                                        .rope_theta = 500000,
                                        .tie_word_embeddings = true};

constexpr LayoutDefaults kErnieMoe = [] {
  LayoutDefaults defaults = kErnieDefaults;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 12288;
  defaults.num_hidden_layers = 28;
  defaults.num_attention_heads = 20;
  defaults.num_key_value_heads = 4;
  defaults.head_dim = {};
  return defaults;
}();

DecoderSpec ernie_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = attention.output.bias = read_flag(config, "use_bias", false);
  mlp.up.bias = mlp.down.bias = attention.qkv.bias;
  return spec;
}

DecoderSpec parse_ernie(const JsonFields& config) {
  DecoderSpec spec = ernie_layout(config, kErnieDefaults);
  if (config.string_or("model_type", "").starts_with("paddleocr_vl"))
    spec.kinds.front().mixers.front().attention().rope = RopePairing::halves;
  return spec;
}

// Each moe_layer_interval-th layer between two.
std::vector<bool> sparse_layers(const JsonFields& c, int64_t layers) {
  const int64_t first = c.integer_or("moe_layer_start_index", 0, kMaxLayers, 1);
  const int64_t end = c.integer_or("moe_layer_end_index", -1, kMaxLayers, -1);
  const int64_t interval = read_size(c, "moe_layer_interval", 1, kMaxLayers);
  std::vector<bool> sparse;
  for (int64_t l = 0; l < layers; ++l)
    sparse.push_back((l + 1) % interval == 0 && l >= first && (end == -1 || l <= end));
  return sparse;
}

DecoderSpec parse_ernie_moe(const JsonFields& c) {
  DecoderSpec spec = ernie_layout(c, kErnieMoe);
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  ExpertsSpec experts = read_experts(c, {.count = {"num_experts", "moe_num_experts"},
                                         .absent_count = 64,
                                         .top_k = c.has("moe_k") ? "moe_k" : "num_experts_per_tok",
                                         .absent_top_k = 6});
  experts.choice.normalized = true;
  const int64_t width = read_size(c, "moe_intermediate_size", 1536, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.choice_bias = mlp.name + ".moe_statics.e_score_correction_bias";
  const int64_t shared = c.integer_or("moe_num_shared_experts", 0, kMostExperts, 2);
  if (shared > 0) experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", shared * width);
  spec.head_bias = mlp.up.bias;
  use_experts(spec, experts, sparse_layers(c, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> ernie4_5_families() {
  return {
      {"Ernie4_5ForCausalLM", "ernie4_5", parse_ernie, {}, {"paddleocr_vl_text", "paddleocr_vl"}},
      {"Ernie4_5_MoeForCausalLM", "ernie4_5_moe", parse_ernie_moe, {"model.mtp_*"}}};
}

}  // namespace sluice
