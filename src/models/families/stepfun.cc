// Step3p5ForCausalLM (Step-3.5-Flash, and the language model of Step-3.7-Flash): Llama's layout
// with norms of 1 + w, also of each head's q and k, gates of the heads, in some layers windows with
// a rope and a number of heads of their own, and from some layer on experts beside a shared one,
// whose gates some layers clamp.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr const char* kStepPart = "partial_rotary_factor";
constexpr LayoutDefaults kStep{.vocab_size = 128815,
                               .hidden_size = 4096,
                               .intermediate_size = 11264,
                               .num_hidden_layers = 45,
                               .num_attention_heads = 64,
                               .num_key_value_heads = 8,
                               .head_dim = 128,
                               .max_position_embeddings = 128000,
                               .rms_norm_eps = 1e-5,
                               .rope_theta = 10000,
                               .part_key = kStepPart,
                               .rope_layers = "full_attention"};

// Kinds of layers by what they attend to, and their ropes.
enum : size_t { kFull, kWindowed };
constexpr std::array<const char*, 2> kStepTypes{"full_attention", "sliding_attention"};

// A layer's number in a list, or the one number of all; `absent` where there is none.
double number_of(const Json& config, const char* key, size_t layer, double absent,
                 const std::string& where) {
  if (!config.contains(key)) return absent;
  const Json& given = config[key];
  const Json value = given.is_array() && layer < given.size() ? given[layer] : given;
  if (value.is_null()) return absent;
  if (!value.is_number() || !(value.get<double>() >= 0) || !(value.get<double>() < 1e30))
    fail(ErrorKind::refused, "{}: {} must have a number for layer {} that is not negative", where,
         key, layer);
  return value.get<double>();
}

// Puts ropes of kinds of layers in the place of lists with a number for each layer. A scaling is
// that of layers without a window.
void divide_ropes(Json& config, const std::vector<size_t>& kinds, const std::string& where) {
  constexpr const char *kRopes = "rope_parameters", *kScaling = "rope_scaling";
  const bool divided = config.contains(kRopes) && config[kRopes].is_object() &&
                       std::ranges::any_of(kStepTypes, [&](const char* type) {
                         return config[kRopes].contains(type);
                       });
  if (divided) return;
  Json ropes = Json::object();
  for (size_t kind : {kFull, kWindowed}) {
    const auto found = std::ranges::find(kinds, kind) - kinds.begin();
    const auto layer = static_cast<size_t>(found) < kinds.size() ? static_cast<size_t>(found) : 0;
    Json& rope = ropes[kStepTypes[kind]];
    if (kind == kFull && config.contains(kScaling) && config[kScaling].is_object())
      rope = config[kScaling];
    if (!rope.contains("rope_type") && !rope.contains("type")) rope["rope_type"] = "default";
    if (!rope.contains("rope_theta"))
      rope["rope_theta"] = number_of(config, "rope_theta", layer, kStep.rope_theta, where);
    rope[kStepPart] = number_of(config, "partial_rotary_factors", layer, 1, where);
  }
  config[kRopes] = ropes;
  for (const char* key : {"rope_theta", kScaling}) config.erase(key);
}

// Experts are in the layers of mlp_layer_types, or of moe_layers_enum ("3,4,5" or a list), or from
// the fourth on.
std::vector<bool> read_sparse(const JsonFields& c, int64_t layers) {
  constexpr const char* kEnum = "moe_layers_enum";
  if (c.has("mlp_layer_types") || !c.has(kEnum)) {
    const auto kinds = read_layer_types(c, layers, {"dense", "sparse"}, "mlp_layer_types");
    std::vector<bool> sparse = sparse_from(3, layers);
    for (size_t l = 0; l < kinds.size(); ++l) sparse[l] = kinds[l] == 1;
    return sparse;
  }
  Json numbers = c.raw(kEnum);
  if (numbers.is_string())
    numbers = Json::parse("[" + numbers.get<std::string>() + "]", nullptr, false);
  std::vector<bool> sparse(static_cast<size_t>(layers), false);
  const bool good = numbers.is_array() && std::ranges::all_of(numbers, [](const Json& n) {
                      return n.is_number_integer() && n >= 0;
                    });
  if (!good) fail(ErrorKind::refused, "{}: {} must be a list of layers", c.where(), kEnum);
  for (const Json& n : numbers)
    if (n < layers) sparse[n.get<size_t>()] = true;
  return sparse;
}

// The config with lists for the model's own layers, behind which published ones have those of the
// layers for drafts, and without lists of ropes.
Json own_config(const JsonFields& c, std::vector<size_t>& kinds) {
  Json config = c.object();
  const int64_t layers = read_size(c, "num_hidden_layers", kStep.num_hidden_layers, kMaxLayers);
  for (const char* key : {"layer_types", "mlp_layer_types"}) {
    if (config.contains(key) && config[key].is_array() && std::ssize(config[key]) > layers)
      config[key].erase(config[key].begin() + layers, config[key].end());
  }
  const JsonFields cut(config, c.where());
  kinds = read_layer_types(cut, layers, {kStepTypes[kFull], kStepTypes[kWindowed]});
  if (kinds.empty()) kinds.assign(static_cast<size_t>(layers), kFull);
  divide_ropes(config, kinds, c.where());
  return config;
}

int64_t read_windowed_heads(const JsonFields& c, int64_t heads) {
  constexpr const char* kOther = "attention_other_setting";
  int64_t absent = heads;
  if (c.has(kOther))
    absent = read_size(JsonFields(c.raw(kOther), c.where() + ": " + kOther), "num_attention_heads",
                       heads);
  return c.integer_or("num_sliding_attention_heads", 1, kMaxWidth, absent);
}

void use_windowed_attention(const JsonFields& c, AttentionSpec& attention) {
  const int64_t heads = read_windowed_heads(c, attention.heads.units());
  const int64_t window = c.integer("sliding_window", 1, kMaxPositions);
  if (heads * attention.head_dim > kMaxWidth || heads % attention.kv_heads.units() != 0)
    fail(ErrorKind::refused,
         "{}: layers with a window have {} heads, which the {} KV heads do not divide, or which is "
         "absurd",
         c.where(), heads, attention.kv_heads.units());
  attention.window = window;
  attention.angles = kWindowed;
  attention.heads.size = heads * attention.head_dim;
}

ExpertsSpec step_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts =
      read_experts(c, {.count = {"n_routed_experts", "num_local_experts", "moe_num_experts"},
                       .absent_count = 288,
                       .top_k = present(c, "num_experts_per_tok", "moe_top_k"),
                       .absent_top_k = 8});
  const int64_t width = read_size(c, "moe_intermediate_size", 1280, 4 * kMaxWidth);
  const int64_t shared =
      read_size(c, present(c, "share_expert_dim", "share_expert_dims"), 1280, 4 * kMaxWidth);
  const std::string layer = mlp.name.substr(0, mlp.name.rfind('.')), moe = layer + ".moe";
  name_experts(experts, mlp_like(mlp, moe, width), width);
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.normalized = true;
  experts.choice.factor = read_factor(c, "moe_router_scaling_factor", 1);
  experts.choice_bias = moe + ".router_bias";
  experts.stacks_apart = {moe + ".gate_proj", moe + ".up_proj", moe + ".down_proj"};
  experts.shared = mlp_like(mlp, layer + ".share_expert", shared);
  return experts;
}

void clamp_gate(MlpSpec& mlp, double limit) {
  if (limit == 0) return;
  mlp.activation = Activation::silu_clamped;
  mlp.limit = static_cast<float>(limit);
}

// The layer of one kind, whose gates are clamped by its limits.
LayerSpec layer_of(const LayerSpec& common, const ExpertsSpec* experts, double limit,
                   double shared_limit) {
  LayerSpec layer = common;
  MlpBranch& branch = layer.mlps.front();
  clamp_gate(branch.mlp, shared_limit);
  if (experts == nullptr) return layer;
  branch.experts = *experts;
  clamp_gate(branch.experts->expert, limit);
  clamp_gate(*branch.experts->shared, shared_limit);
  return layer;
}

// Refuses what single layers have of their own, but the heads of those with a window.
void check_own_configs(const JsonFields& c, const std::vector<size_t>& kinds, int64_t heads) {
  each_own_config(c, kinds.size(), [&](size_t layer, const JsonFields& of, const std::string& key) {
    return key == "num_attention_heads" && kinds[layer] == kWindowed &&
           of.integer(key.c_str(), 1, kMaxWidth) == heads;
  });
}

DecoderSpec parse_step(const JsonFields& given) {
  if (read_boolean(given, "attention_bias", false) || read_boolean(given, "mlp_bias", false))
    fail(ErrorKind::refused, "{}: attention_bias or mlp_bias is true, which is not supported",
         given.where());
  std::vector<size_t> kinds;
  const Json config = own_config(given, kinds);
  const JsonFields c(config, given.where());
  LayoutDefaults defaults = kStep;
  defaults.num_key_value_heads = read_size(c, "num_attention_groups", 8);
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec& full = spec.kinds.front();
  full.mlps.front().mlp.activation = Activation::silu;  // whatever hidden_act says
  AttentionSpec& attention = full.mixers.front().attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.qkv.parts.push_back({attention.name + ".g_proj"});
  attention.output_gate = Activation::sigmoid;
  attention.gates_heads = true;
  if (c.has("query_pre_attn_scalar"))
    attention.scale = 1 / std::sqrt(read_factor(c, "query_pre_attn_scalar", 1));
  each_norm(spec, [](NormSpec& norm) { norm.params.weight_offset = 1; });
  spec.ropes.push_back(parse_rope(c, {.head_dim = attention.head_dim,
                                      .max_positions = spec.max_positions,
                                      .default_theta = kStep.rope_theta,
                                      .theta_key = nullptr,
                                      .part_key = kStepPart,
                                      .layers = kStepTypes[kWindowed]}));
  std::vector<LayerSpec> commons{full, full};
  if (std::ranges::count(kinds, kWindowed) > 0)
    use_windowed_attention(c, commons[kWindowed].mixers.front().attention());
  check_own_configs(c, kinds, commons[kWindowed].mixers.front().attention().heads.units());
  const ExpertsSpec experts = step_experts(c, full.mlps.front().mlp);
  const std::vector<bool> sparse = read_sparse(c, std::ssize(kinds));
  using Kind = std::tuple<size_t, bool, double, double>;
  std::vector<Kind> known;
  spec.kinds.clear();
  for (size_t l = 0; l < kinds.size(); ++l) {
    const double limit = sparse[l] ? number_of(config, "swiglu_limits", l, 0, c.where()) : 0;
    const double shared = number_of(config, "swiglu_limits_shared", l, 0, c.where());
    const Kind kind(kinds[l], sparse[l], limit, shared);
    spec.layers[l] = static_cast<size_t>(std::ranges::find(known, kind) - known.begin());
    if (spec.layers[l] < known.size()) continue;
    known.push_back(kind);
    spec.kinds.push_back(
        layer_of(commons[kinds[l]], sparse[l] ? &experts : nullptr, limit, shared));
  }
  ignore_more_layers(c, spec);
  return spec;
}

}  // namespace

std::vector<Family> stepfun_families() {
  return {{.architecture = "Step3p5ForCausalLM",
           .model_type = "step3p5",
           .parse = parse_step,
           .ignorable = {"vision_model.*", "vit_large_projector.*"},
           .text_types = {"step3p7"},
           .reads_layer_config = true}};
}

}  // namespace sluice
