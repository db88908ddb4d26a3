// MiMoV2FlashForCausalLM (MiMo-V2-Flash): Llama's layout with values smaller than keys, rope on a
// part of each head, from some layer on experts, and in most layers windows, sinks of the heads, a
// rope of their own, and twice the KV heads.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kMimo{.vocab_size = 152576,
                               .hidden_size = 4096,
                               .intermediate_size = 16384,
                               .num_hidden_layers = 48,
                               .num_attention_heads = 64,
                               .num_key_value_heads = 4,
                               .head_dim = 192,
                               .max_position_embeddings = 131072,
                               .rms_norm_eps = 1e-5,
                               .rope_theta = 5000000,
                               .part_key = "partial_rotary_factor",
                               .part = 0.334,
                               .rope_layers = "full_attention",
                               .rope_of_class = true};

enum : size_t { kFull, kWindowed };  // kinds of layers, and their ropes

ExpertsSpec mimo_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(
      c,
      {.count = {"num_local_experts", "n_routed_experts"}, .absent_count = 256, .absent_top_k = 8});
  read_grouped_choice(c, {.may_lack_factor = true}, experts);
  name_experts(experts, mlp, read_size(c, "moe_intermediate_size", 2048, 4 * kMaxWidth));
  experts.choice_bias = mlp.name + ".gate.e_score_correction_bias";
  return experts;
}

// The window, which another key has without the token itself.
int64_t read_window(const JsonFields& c) {
  constexpr const char* kBefore = "sliding_window_size";
  if (c.has(kBefore)) return c.integer(kBefore, 0, kMaxPositions - 1) + 1;
  return read_size(c, "sliding_window", 129, kMaxPositions);
}

void use_windowed_attention(const JsonFields& c, AttentionSpec& attention) {
  attention.window = read_window(c);
  attention.angles = kWindowed;
  attention.kv_heads.size *= 2;
  attention.sinks = attention.name + ".attention_sink_bias";
  if (attention.heads.units() % attention.kv_heads.units() != 0)
    fail(ErrorKind::refused, "{}: twice num_key_value_heads ({}) does not divide the {} heads",
         c.where(), attention.kv_heads.units(), attention.heads.units());
}

DecoderSpec parse_mimo(const JsonFields& c) {
  constexpr int64_t kFullEach = 6;
  DecoderSpec spec = common_layout(c, kMimo);
  MixerBranch& mixer = spec.kinds.front().mixers.front();
  AttentionSpec& attention = mixer.attention();
  attention.qkv.bias = read_boolean(c, "attention_bias", false);
  attention.value_dim = read_size(c, "v_head_dim", 128, kMaxWidth / attention.heads.units());
  if (attention.value_dim % 2 != 0)
    fail(ErrorKind::refused, "{}: v_head_dim ({}) must be even", c.where(), attention.value_dim);
  // A factor of values is one of the output, which is a product of them without a bias.
  constexpr const char* kScale = "attention_value_scale";
  if (!c.is_null(kScale)) mixer.multiplier = read_factor(c, kScale, 0.707);
  spec.ropes.push_back(parse_rope(c, {.head_dim = attention.head_dim,
                                      .max_positions = spec.max_positions,
                                      .default_theta = 10000,
                                      .theta_key = nullptr,
                                      .part_key = kMimo.part_key,
                                      .default_part = kMimo.part,
                                      .layers = "sliding_attention"}));
  spec.kinds.push_back(spec.kinds.front());
  use_windowed_attention(c, spec.kinds.back().mixers.front().attention());
  const auto count = std::ssize(spec.layers);
  const std::vector<size_t> kinds =
      read_layer_types(c, count, {"full_attention", "sliding_attention"});
  for (int64_t l = 0; l < count; ++l) {
    const size_t absent = l == 0 || (l + 1) % kFullEach == 0 ? kFull : kWindowed;
    const auto i = static_cast<size_t>(l);
    spec.layers[i] = kinds.empty() ? absent : kinds[i];
  }
  const ExpertsSpec experts = mimo_experts(c, spec.kinds.front().mlps.front().mlp);
  use_experts(spec, experts, read_mlp_layer_types(c, count, 1));
  return spec;
}

}  // namespace

std::vector<Family> mimo_v2_flash_families() {
  return {{"MiMoV2FlashForCausalLM", "mimo_v2_flash", parse_mimo, {"model.mtp.*"}}};
}

}  // namespace sluice
