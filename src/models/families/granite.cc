// GraniteForCausalLM (Granite 3): Llama's layout, with multipliers of the embedding, of what blocks
// compute, of scores and of logits. GraniteMoeForCausalLM: the same with experts.
// GraniteMoeHybridForCausalLM (Granite 4): the same, with or without experts beside a shared one,
// with Mamba-2 in the place of attention in most layers, and mostly no rope in the others.
// GraniteSWAForCausalLM and GraniteMoeSWAForCausalLM: the first two (the second with a shared
// expert) with sinks, windows in most layers, and a base of the rope for each layer.
// HyperCLOVAXForCausalLM: the first, where what blocks compute has a norm, and logits are
// multiplied.
#include <algorithm>
#include <map>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/mamba2.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kGraniteDefaults{.vocab_size = 32000,
                                          .hidden_size = 4096,
                                          .intermediate_size = 11008,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .max_position_embeddings = 2048,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 10000};

// Reads what both generations share.
DecoderSpec parse_common(const JsonFields& c, const LayoutDefaults& defaults = kGraniteDefaults) {
  DecoderSpec spec = common_layout(c, defaults);
  MixerBranch& mixer = spec.kinds.front().mixers.front();
  AttentionSpec& attention = mixer.attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.scale =
      c.is_null("attention_multiplier") ? 1 : read_factor(c, "attention_multiplier", 1);
  mixer.multiplier = spec.kinds.front().mlps.front().multiplier =
      read_factor(c, "residual_multiplier", 1);
  spec.embedding_multiplier = read_factor(c, "embedding_multiplier", 1);
  spec.logit_multiplier = 1 / read_factor(c, "logits_scaling", 1);
  return spec;
}

DecoderSpec with_mlp_bias(const JsonFields& c, DecoderSpec spec) {
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(c, "mlp_bias", false);
  return spec;
}

DecoderSpec parse_granite(const JsonFields& c) { return with_mlp_bias(c, parse_common(c)); }

// Stacks of all experts' gate and up, and down. `mlp` has the width of an expert.
ExpertsSpec granite_experts(const JsonFields& c, const std::string& layer, const MlpSpec& mlp) {
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_local_experts"}, .absent_count = 8, .absent_top_k = 2});
  const std::string name = layer + ".block_sparse_moe";
  name_experts(experts, mlp_like(mlp, name, mlp.width.size), mlp.width.size);
  experts.router = one_linear(name + ".router.layer", false);
  experts.choice.normalized = true;
  experts.stacked_gate_up = name + ".input_linear";
  experts.stacked_down = name + ".output_linear";
  for (const char* stack : {".w1", ".w3", ".w2"})  // of MLX
    experts.stacks_apart.push_back(name + ".experts" + stack);
  return experts;
}

DecoderSpec parse_granite_moe(const JsonFields& c) {
  DecoderSpec spec = parse_common(c);
  const LayerSpec& layer = spec.kinds.front();
  const ExpertsSpec experts = granite_experts(c, layer.name, layer.mlps.front().mlp);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

DecoderSpec parse_granite_moe_shared(const JsonFields& c) {
  DecoderSpec spec = parse_granite_moe(c);
  LayerSpec& layer = spec.kinds.front();
  const int64_t width = c.integer_or("shared_intermediate_size", 0, 4 * kMaxWidth, 0);
  if (width == 0) return spec;
  MlpSpec shared = mlp_like(layer.mlps.front().mlp, layer.name + ".shared_mlp", width);
  fuse(shared.up, shared.name + ".input_linear", {0, width});
  shared.down = one_linear(shared.name + ".output_linear", false);
  layer.mlps.front().experts->shared = std::move(shared);
  return spec;
}

DecoderSpec parse_hybrid(const JsonFields& c) {
  DecoderSpec spec = parse_common(c);
  LayerSpec& layer = spec.kinds.front();
  if (c.string_or("position_embedding_type", "") != "rope") {
    layer.mixers.front().attention().rope = std::nullopt;
    spec.ropes.clear();
  }
  MlpSpec& mlp = layer.mlps.front().mlp;
  std::optional<ExpertsSpec> experts;
  if (c.integer_or("num_local_experts", 0, kMostExperts, 8) > 0)
    experts = granite_experts(c, layer.name, mlp);
  mlp.name = layer.name + ".shared_mlp";
  mlp.width.size = read_size(c, "shared_intermediate_size", 1024, 4 * kMaxWidth);
  fuse(mlp.up, mlp.name + ".input_linear", {0, mlp.width.size});
  mlp.down = one_linear(mlp.name + ".output_linear", false);
  if (experts) experts->shared = mlp;
  layer.mlps.front().experts = experts;
  LayerSpec mamba = layer;
  mamba.mixers.front().mixer =
      mamba2_mixer(c, layer.name + ".mamba", spec.hidden_size, spec.norm.params);
  spec.kinds.push_back(std::move(mamba));
  const char* types = c.has("layers_block_type") ? "layers_block_type" : "layer_types";
  std::vector<size_t> kinds =
      read_layer_types(c, std::ssize(spec.layers),
                       {"attention", "mamba", "full_attention", "linear_attention"}, types);
  for (size_t l = 0; l < spec.layers.size(); ++l) spec.layers[l] = kinds.empty() ? 1 : kinds[l] % 2;
  return spec;
}

// Returns the model's rope that each layer has, one for each base that is not 0.
std::vector<std::optional<size_t>> read_layer_ropes(const JsonFields& c, DecoderSpec& spec) {
  const size_t count = spec.layers.size();
  const auto thetas = read_numbers(c, "layer_rope_theta");
  if (!thetas) return std::vector<std::optional<size_t>>(count, 0);
  if (thetas->size() != count || std::ranges::any_of(*thetas, [](double t) { return t < 0; }))
    fail(ErrorKind::refused, "{}: layer_rope_theta must be {} numbers that are not negative",
         c.where(), count);
  const RopeConfig common = spec.ropes.front();
  std::map<double, size_t> known;
  std::vector<std::optional<size_t>> ropes;
  spec.ropes.clear();
  for (double theta : *thetas) {
    if (theta == 0) {
      ropes.push_back(std::nullopt);
      continue;
    }
    const auto [at, is_new] = known.try_emplace(theta, spec.ropes.size());
    if (is_new) {
      spec.ropes.push_back(common);
      spec.ropes.back().theta = theta;
      check_angles(spec.ropes.back(), c.where());
    }
    ropes.push_back(at->second);
  }
  return ropes;
}

// Without layer_types every fourth layer, from the first on, has no window.
DecoderSpec with_sinks_and_windows(const JsonFields& c, DecoderSpec spec) {
  constexpr int64_t kWindow = 128;
  constexpr size_t kFullEach = 4;
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.sinks = attention.name + ".sinks";
  std::vector<int64_t> windows = read_windows(c, kWindow, std::ssize(spec.layers));
  if (!c.has("layer_types")) {
    for (size_t l = 0; l < windows.size(); l += kFullEach) windows[l] = 0;
  }
  const auto ropes = read_layer_ropes(c, spec);
  std::vector<LayerAttention> layers;
  for (size_t l = 0; l < windows.size(); ++l)
    layers.push_back({.window = windows[l], .rope = ropes[l]});
  use_attention(spec, layers);
  return spec;
}

constexpr LayoutDefaults kGraniteSwa = [] {
  LayoutDefaults defaults = kGraniteDefaults;
  defaults.vocab_size = 100352;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 8192;
  defaults.num_hidden_layers = 24;
  defaults.num_attention_heads = 20;
  defaults.num_key_value_heads = 4;
  defaults.max_position_embeddings = 8192;
  defaults.rms_norm_eps = 1e-5;
  defaults.tie_word_embeddings = true;
  return defaults;
}();

DecoderSpec parse_granite_swa(const JsonFields& c) {
  return with_sinks_and_windows(c, with_mlp_bias(c, parse_common(c, kGraniteSwa)));
}

// Its experts have other names.
DecoderSpec parse_granite_moe_swa(const JsonFields& c) {
  DecoderSpec spec = parse_granite_moe_shared(c);
  ExpertsSpec& experts = *spec.kinds.front().mlps.front().experts;
  experts.router = one_linear(experts.name + ".router", false);
  experts.stacked_gate_up = experts.name + ".experts.gate_up_proj";
  experts.stacked_down = experts.name + ".experts.down_proj";
  return with_sinks_and_windows(c, std::move(spec));
}

DecoderSpec parse_hyperclovax(const JsonFields& c) {
  DecoderSpec spec = parse_granite(c);
  LayerSpec& layer = spec.kinds.front();
  if (!c.has("attention_multiplier")) layer.mixers.front().attention().scale = 0;
  spec.logit_multiplier = read_factor(c, "logits_scaling", 1);
  if (!read_boolean(c, "use_post_norm", true)) return spec;
  layer.mixers.front().output_norm = {layer.name + ".post_norm1", spec.norm.params};
  layer.mlps.front().output_norm = {layer.name + ".post_norm2", spec.norm.params};
  return spec;
}

}  // namespace

std::vector<Family> granite_families() {
  return {{"GraniteForCausalLM",
           "granite",
           parse_granite,
           {},
           {"granite4_vision_text", "granite_docling_text"}},
          {"GraniteMoeForCausalLM", "granitemoe", parse_granite_moe, {}},
          {"GraniteMoeSharedForCausalLM", "granitemoeshared", parse_granite_moe_shared, {}},
          {"GraniteMoeHybridForCausalLM", "granitemoehybrid", parse_hybrid, {}},
          {"GraniteSWAForCausalLM", "granite_swa", parse_granite_swa, {}},
          {"GraniteMoeSWAForCausalLM", "granitemoe_swa", parse_granite_moe_swa, {}},
          {"HyperCLOVAXForCausalLM", "hyperclovax", parse_hyperclovax, {}}};
}

}  // namespace sluice
