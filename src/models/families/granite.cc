// GraniteForCausalLM (Granite 3): Llama's layout, with multipliers of the embedding, of what blocks
// compute, of scores and of logits. GraniteMoeForCausalLM: the same with experts.
// GraniteMoeHybridForCausalLM (Granite 4): the same, with or without experts beside a shared one,
// with Mamba-2 in the place of attention in most layers, and mostly no rope in the others.
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
DecoderSpec parse_common(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kGraniteDefaults);
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

DecoderSpec parse_granite(const JsonFields& c) {
  DecoderSpec spec = parse_common(c);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(c, "mlp_bias", false);
  return spec;
}

// Stacks of all experts' gate and up, and down. `mlp` has the width of an expert.
ExpertsSpec granite_experts(const JsonFields& c, const std::string& layer, const MlpSpec& mlp) {
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_local_experts"}, .absent_count = 8, .absent_used = 2});
  const std::string name = layer + ".block_sparse_moe";
  name_experts(experts, mlp_like(mlp, name, mlp.width.size), mlp.width.size);
  experts.router = one_linear(name + ".router.layer", false);
  experts.choice.normalized = true;
  experts.stacked_gate_up = name + ".input_linear";
  experts.stacked_down = name + ".output_linear";
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

}  // namespace

std::vector<Family> granite_families() {
  return {{"GraniteForCausalLM", "granite", parse_granite, {}},
          {"GraniteMoeForCausalLM", "granitemoe", parse_granite_moe, {}},
          {"GraniteMoeSharedForCausalLM", "granitemoeshared", parse_granite_moe_shared, {}},
          {"GraniteMoeHybridForCausalLM", "granitemoehybrid", parse_hybrid, {}}};
}

}  // namespace sluice
