// LagunaForCausalLM (Laguna): Llama's layout with norms of each head's q and k, gates of
// attention's output, windows in some layers, which have a rope of their own, in each layer its own
// number of heads, and from some layer on experts beside a shared one.
#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLaguna{.vocab_size = 100352,
                                 .hidden_size = 2048,
                                 .intermediate_size = 8192,
                                 .num_hidden_layers = 40,
                                 .num_attention_heads = 48,
                                 .num_key_value_heads = 8,
                                 .head_dim = 128,
                                 .max_position_embeddings = 131072,
                                 .rms_norm_eps = 1e-6,
                                 .rope_theta = 500000,
                                 .part_key = "partial_rotary_factor",
                                 .rope_layers = "full_attention",
                                 .rope_of_class = true};

void use_gate(const JsonFields& c, AttentionSpec& attention) {
  constexpr const char* kGating = "gating";
  attention.output_gate = Activation::softplus;
  attention.qkv.parts.push_back({attention.name + ".g_proj"});
  const bool named = c.has(kGating) && c.raw(kGating).is_string();
  attention.gates_heads =
      named ? c.string_or(kGating, "") == "per-head" : read_boolean(c, kGating, true);
}

ExpertsSpec laguna_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, {.absent_count = 256, .absent_top_k = 8});
  name_experts(experts, mlp, read_size(c, "moe_intermediate_size", 512, 4 * kMaxWidth));
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.normalized = true;
  experts.choice.factor = read_factor(c, "moe_routed_scaling_factor", 1);
  experts.choice_bias = mlp.name + ".experts.e_score_correction_bias";
  constexpr const char* kCap = "moe_router_logit_softcapping";
  if (c.number_or(kCap, 0) != 0) experts.logit_soft_cap = read_cap(c, kCap, 0);  // 0: none
  experts.shared = mlp_like(mlp, mlp.name + ".shared_expert",
                            read_size(c, "shared_expert_intermediate_size", 512, 4 * kMaxWidth));
  return experts;
}

// The heads of each layer.
std::vector<int64_t> read_layer_heads(const JsonFields& c, const AttentionSpec& attention,
                                      size_t layers) {
  constexpr const char* kKey = "num_attention_heads_per_layer";
  std::vector<int64_t> heads(layers, attention.heads.units());
  const auto given = read_numbers(c, kKey);
  if (!given) return heads;
  const int64_t kv_heads = attention.kv_heads.units();
  for (size_t l = 0; l < layers && l < given->size(); ++l) {
    const double count = (*given)[l];
    if (count >= 1 && count * static_cast<double>(attention.head_dim) <= kMaxWidth)
      heads[l] = static_cast<int64_t>(count);
    if (static_cast<double>(heads[l]) != count || heads[l] % kv_heads != 0)
      fail(ErrorKind::refused, "{}: {}[{}] is {}, but must be a multiple of {}", c.where(), kKey, l,
           count, kv_heads);
  }
  if (given->size() != layers)
    fail(ErrorKind::refused, "{}: {} has {} numbers, but must have one for each of {} layers",
         c.where(), kKey, given->size(), layers);
  return heads;
}

// Makes a kind of layer for each window and number of heads.
void use_layer_heads(const std::vector<int64_t>& windows, const std::vector<int64_t>& heads,
                     DecoderSpec& spec) {
  enum : size_t { kFullRope, kWindowRope };
  const LayerSpec layer = std::move(spec.kinds.front());
  std::vector<std::pair<int64_t, int64_t>> known;
  spec.kinds.clear();
  for (size_t l = 0; l < windows.size(); ++l) {
    const std::pair kind(windows[l], heads[l]);
    spec.layers[l] = static_cast<size_t>(std::ranges::find(known, kind) - known.begin());
    if (spec.layers[l] < known.size()) continue;
    known.push_back(kind);
    AttentionSpec& attention = spec.kinds.emplace_back(layer).mixers.front().attention();
    attention.window = windows[l];
    attention.angles = windows[l] > 0 ? kWindowRope : kFullRope;
    attention.heads.size = heads[l] * attention.head_dim;
  }
}

DecoderSpec parse_laguna(const JsonFields& c) {
  if (read_boolean(c, "attention_bias", false) ||
      read_boolean(c, "moe_apply_router_weight_on_input", false))
    fail(ErrorKind::refused,
         "{}: attention_bias or moe_apply_router_weight_on_input is true, which is not supported",
         c.where());
  LayoutDefaults defaults = kLaguna;
  if (!has_rope_fields(c)) defaults.part = 0.5;
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  use_gate(c, attention);
  spec.ropes.push_back(parse_rope(c, {.head_dim = attention.head_dim,
                                      .max_positions = spec.max_positions,
                                      .default_theta = 10000,
                                      .theta_key = nullptr,
                                      .part_key = defaults.part_key,
                                      .layers = "sliding_attention"}));
  const auto count = std::ssize(spec.layers);
  std::vector<int64_t> windows(spec.layers.size(), 0);
  if (c.has("layer_types")) windows = read_windows(c, 512, count);
  const ExpertsSpec experts = laguna_experts(c, layer.mlps.front().mlp);
  use_layer_heads(windows, read_layer_heads(c, attention, spec.layers.size()), spec);
  use_experts(spec, experts, read_mlp_layer_types(c, count, 1));
  return spec;
}

}  // namespace

std::vector<Family> laguna_families() {
  return {{"LagunaForCausalLM", "laguna", parse_laguna, {}}};
}

}  // namespace sluice
