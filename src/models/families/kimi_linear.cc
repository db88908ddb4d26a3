// KimiLinearForCausalLM (Kimi Linear): Llama's layout with Kimi Delta Attention (arXiv:2510.26692),
// a gated delta rule with a decay for each key, in the place of attention in most layers, latent
// attention without rope in the others, and from some layer on experts beside a shared one.
// BailingHybridForCausalLM (Ling 3): the same with rope, gates of the heads of latent attention,
// and decays that have a floor.
#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/hub_shapes.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kKimiLinear{.vocab_size = 163840,
                                     .hidden_size = 2304,
                                     .intermediate_size = 9216,
                                     .num_hidden_layers = 27,
                                     .num_attention_heads = 32,
                                     .num_key_value_heads = 32,
                                     .max_position_embeddings = 1048576,
                                     .rms_norm_eps = 1e-5,
                                     .rope_theta = 10000,
                                     .positions_key = "model_max_length"};
constexpr LayoutDefaults kLing = [] {
  LayoutDefaults defaults = kKimiLinear;
  defaults.vocab_size = 157184;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6144;
  defaults.num_hidden_layers = 42;
  defaults.max_position_embeddings = 262144;
  defaults.rms_norm_eps = 1e-6;
  defaults.rope_theta = 6000000;
  return defaults;
}();

// The two kinds of layers.
enum : size_t { kAttends, kRecurs };

struct DeltaSizes {
  int64_t heads = 0;
  int64_t head_dim = 0;  // of keys and of values
  int64_t width = 0;     // of the convolutions
};

// The mixer without its gate and decays, the fourth and fifth part of its input.
GatedDeltaNetSpec delta_attention(const JsonFields& c, const std::string& name,
                                  const DeltaSizes& sizes, const NormParams& norm) {
  if (read_activation(c, "hidden_act", "silu") != Activation::silu)  // it is the convolution's, too
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  if (sizes.heads * sizes.head_dim > kMaxWidth || sizes.head_dim % 2 != 0)
    fail(ErrorKind::refused, "{}: {} heads of {} elements, which is odd or absurd", c.where(),
         sizes.heads, sizes.head_dim);
  const Dimension heads{.size = sizes.heads * sizes.head_dim, .unit = sizes.head_dim};
  return {.name = name,
          .heads = heads,
          .key_heads = heads,
          .key_dim = sizes.head_dim,
          .value_dim = sizes.head_dim,
          .input = {.name = name + ".in_proj",
                    .parts = {{name + ".q_proj"}, {name + ".k_proj"}, {name + ".v_proj"}}},
          .convolution = {.name = name + ".conv1d",
                          .width = sizes.width,
                          .silu = true,
                          .first = {0, 0, 0},
                          .sources = {name + ".q_conv1d", name + ".k_conv1d", name + ".v_conv1d"}},
          .log_rates = name + ".A_log",
          .step_bias = name + ".dt_bias",
          .decays_rows = true,
          .gate = Activation::sigmoid,
          .norm = {name + ".o_norm", norm},
          .output = one_linear(name + ".o_proj", false)};
}

// DeepSeek-V3's experts under these classes' keys, which have other names, too.
ExpertsSpec delta_experts(const JsonFields& c, const MlpSpec& mlp, int64_t absent_count,
                          int64_t absent_width, GroupedChoice choice) {
  choice.groups_key = present(c, "num_expert_group", "n_group");
  choice.normalized_key = present(c, "moe_renormalize", "norm_topk_prob");
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_local_experts", "num_experts"},
                       .absent_count = absent_count,
                       .top_k = present(c, "num_experts_per_token", "num_experts_per_tok"),
                       .absent_top_k = 8});
  read_grouped_choice(c, choice, experts);
  const int64_t width = read_size(c, "moe_intermediate_size", absent_width, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  const int64_t shared =
      c.integer_or(present(c, "num_shared_experts", "n_shared_experts"), 0, kMostExperts, 1);
  if (shared > 0) {
    experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", shared * width);
    experts.shared->up.bias = experts.shared->down.bias = false;
  }
  return experts;
}

// Kinds of layers, by linear_attn_config, which counts them from 1, or by layer_types.
std::vector<size_t> kimi_layer_kinds(const JsonFields& c, const JsonFields& own, int64_t layers) {
  constexpr int64_t kFullEach = 4;
  const std::vector<size_t> kinds =
      read_layer_types(c, layers, {"full_attention", "linear_attention"});
  if (!kinds.empty()) return kinds;
  const auto full = read_numbers(own, "full_attn_layers");
  std::vector<size_t> found;
  for (int64_t l = 0; l < layers; ++l) {
    const bool attends = full ? std::ranges::count(*full, static_cast<double>(l + 1)) > 0
                              : l > 0 && l % kFullEach == 0;
    found.push_back(attends ? kAttends : kRecurs);
  }
  return found;
}

// Reads what the config class has in an object of its own.
int64_t read_own(const JsonFields& c, const JsonFields& own, const char* key, const char* own_key,
                 int64_t absent, int64_t most) {
  return own.has(own_key) ? own.integer(own_key, 1, most) : read_size(c, key, absent, most);
}

// Experts are named after Mixtral's, and the dense layers' MLPs after Llama's.
MlpSpec kimi_expert_mlp(const LayerSpec& layer) {
  MlpSpec mlp = layer.mlps.front().mlp;
  name_mlp(mlp, layer.name + ".block_sparse_moe", "w1", "w3", "w2");
  return mlp;
}

// The mixer whose gate and decays are of a smaller rank.
GatedDeltaNetSpec kimi_delta_attention(const JsonFields& c, const JsonFields& own,
                                       const std::string& name, const NormParams& norm) {
  const DeltaSizes sizes{
      .heads = read_own(c, own, "linear_num_heads", "num_heads", 32, kMaxWidth),
      .head_dim = read_own(c, own, "linear_head_dim", "head_dim", 128, kMaxWidth),
      .width =
          read_own(c, own, "linear_conv_kernel_dim", "short_conv_kernel_size", 4, kMostConvWidth)};
  GatedDeltaNetSpec mixer = delta_attention(c, name, sizes, norm);
  mixer.rank = sizes.head_dim;
  for (const char* part : {".g_a_proj", ".f_a_proj", ".b_proj"})
    mixer.input.parts.push_back({name + part});
  mixer.gate_up = one_linear(name + ".g_b_proj", false);
  mixer.decay_up = one_linear(name + ".f_b_proj", false);
  return mixer;
}

DecoderSpec delta_layout(const JsonFields& c, const MlaDefaults& mla, LayoutDefaults defaults) {
  defaults.positions_key = present(c, defaults.positions_key, "max_position_embeddings");
  return common_layout(c, latent_defaults(c, mla, defaults));
}

DecoderSpec parse_kimi_linear(const JsonFields& c) {
  constexpr const char* kOwn = "linear_attn_config";
  static const Json kNone = Json::object();
  const JsonFields own(c.has(kOwn) ? c.raw(kOwn) : kNone, c.where() + ": " + kOwn);
  const MlaDefaults mla_defaults{.query_rank = 0};
  DecoderSpec spec = delta_layout(c, mla_defaults, kKimiLinear);
  LayerSpec& layer = spec.kinds.front();
  LayerSpec linear = layer;
  use_mla(c, mla_defaults, spec.ropes.front(), layer);
  auto& mla = std::get<MlaSpec>(layer.mixers.front().mixer);
  mla.rope = std::nullopt;
  mla.scale = 1 / std::sqrt(static_cast<float>(mla.query_dim()));
  spec.ropes.clear();
  linear.mixers.front().mixer =
      kimi_delta_attention(c, own, linear.name + ".self_attn", spec.norm.params);
  const MlpSpec expert = kimi_expert_mlp(layer);
  // transformers saves the dense layers' MLPs under the experts' name.
  for (const char* part : {".gate_proj", ".up_proj", ".down_proj"})
    spec.other_names.push_back({layer.mlps.front().mlp.name + part, expert.name + part});
  ExpertsSpec experts = delta_experts(c, expert, 256, 1024, {.factor = 2.446});
  experts.choice_bias = expert.name + ".gate.e_score_correction_bias";
  if (experts.shared)
    name_mlp(*experts.shared, expert.name + ".shared_experts", "gate_proj", "up_proj", "down_proj");
  spec.kinds.push_back(std::move(linear));
  const auto count = std::ssize(spec.layers);
  spec.layers = kimi_layer_kinds(c, own, count);
  use_experts(spec, experts, read_mlp_layer_types(c, count, 1));
  return spec;
}

// The names of both kinds of layers, which are those of the model's own code.
void use_own_names(DecoderSpec& spec) {
  spec.embedding = "model.word_embeddings";
  for (LayerSpec& layer : spec.kinds)
    replace_prefix(spec, layer.name + ".self_attn", layer.name + ".attention");
}

DecoderSpec parse_ling(const JsonFields& c) {
  const MlaDefaults mla_defaults{.query_rank = 0, .may_interleave = false};
  DecoderSpec spec = delta_layout(c, mla_defaults, kLing);
  LayerSpec& layer = spec.kinds.front();
  LayerSpec linear = layer;
  use_mla(c, mla_defaults, spec.ropes.front(), layer);
  const std::string name = linear.name + ".self_attn";
  auto& mla = std::get<MlaSpec>(layer.mixers.front().mixer);
  mla.gate = one_linear(name + ".g_proj", false);
  mla.output = one_linear(name + ".dense", mla.output.bias);
  const DeltaSizes sizes{.heads = mla.heads,
                         .head_dim = read_size(c, present(c, "linear_head_dim", "head_dim"), 128),
                         .width = read_size(c, "short_conv_kernel_size", 4, kMostConvWidth)};
  GatedDeltaNetSpec mixer = delta_attention(c, name, sizes, spec.norm.params);
  for (const char* part : {".g_proj", ".f_proj", ".b_proj"})
    mixer.input.parts.push_back({name + part});
  mixer.output = one_linear(name + ".dense", false);
  if (read_boolean(c, "kda_safe_gate", true)) {
    mixer.decay_floor = static_cast<float>(c.number_or("kda_lower_bound", -5));
    if (!(mixer.decay_floor < 0))
      fail(ErrorKind::refused, "{}: kda_lower_bound is {}, but must be below 0", c.where(),
           mixer.decay_floor);
  }
  linear.mixers.front().mixer = std::move(mixer);
  const MlpSpec& mlp = layer.mlps.front().mlp;
  ExpertsSpec experts =
      delta_experts(c, mlp, 512, 768, {.groups = 8, .top_k_groups = 4, .factor = 2.5});
  experts.choice_bias = mlp.name + ".gate.expert_bias";
  spec.kinds.push_back(std::move(linear));
  const auto count = std::ssize(spec.layers);
  spec.layers = read_layer_types(c, count, {"full_attention", "linear_attention"});
  const int64_t group = read_size(c, "layer_group_size", 6, kMaxLayers);
  for (int64_t l = std::ssize(spec.layers); l < count; ++l)
    spec.layers.push_back((l + 1) % group == 0 ? kAttends : kRecurs);
  use_experts(spec, experts, read_mlp_layer_types(c, count, 2));
  use_own_names(spec);
  ignore_more_layers(c, spec);
  return spec;
}

}  // namespace

std::vector<HubShape> kimi_linear_hub_shapes(const Model& model) {
  std::vector<HubShape> shapes;
  each<GatedDeltaNetSpec>(model.spec, [&](const GatedDeltaNetSpec& mixer) {
    shapes.push_back({mixer.log_rates, {1, 1, mixer.heads.units(), 1}});
  });
  return shapes;
}

std::vector<Family> kimi_linear_families() {
  return {{"KimiLinearForCausalLM", "kimi_linear", parse_kimi_linear, {}},
          {"BailingHybridForCausalLM", "bailing_hybrid", parse_ling, {}}};
}

}  // namespace sluice
