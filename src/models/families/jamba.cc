// JambaForCausalLM: Llama's layout, with Mamba in the place of attention in most layers, no rope in
// the others, and experts in the place of some MLPs.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/mamba.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kJambaDefaults{.vocab_size = 65536,
                                        .hidden_size = 4096,
                                        .intermediate_size = 14336,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .num_key_value_heads = 8,
                                        .max_position_embeddings = 262144,
                                        .rms_norm_eps = 1e-6,
                                        .rope_theta = 10000};

// Each `period`-th layer, from the `offset`-th on.
std::vector<bool> read_layers(const JsonFields& c, const std::string& kind, int64_t period,
                              int64_t offset, size_t layers) {
  const std::string period_key = kind + "_layer_period", offset_key = kind + "_layer_offset";
  c.refuse_null({period_key.c_str(), offset_key.c_str()});
  period = c.integer_or(period_key.c_str(), 1, kMaxLayers, period);
  offset = c.integer_or(offset_key.c_str(), 0, kMaxLayers, offset);
  if (offset >= period)
    fail(ErrorKind::refused, "{}: {} ({}) must be below {} ({})", c.where(), offset_key, offset,
         period_key, period);
  std::vector<bool> chosen;
  for (size_t l = 0; l < layers; ++l) chosen.push_back(static_cast<int64_t>(l) % period == offset);
  return chosen;
}

void add_experts(const JsonFields& c, DecoderSpec& spec) {
  c.refuse_null({"num_experts"});
  if (c.integer_or("num_experts", 0, kMostExperts, 16) <= 1) return;
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_experts"}, .absent_count = 16, .absent_top_k = 2});
  name_experts(experts, mlp, mlp.width.size);
  experts.router = one_linear(mlp.name + ".router", false);
  use_experts(spec, experts, read_layers(c, "expert", 2, 1, spec.layers.size()));
}

DecoderSpec parse_jamba(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kJambaDefaults);
  spec.ropes.clear();
  spec.norm.name = "model.final_layernorm";
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().attention().rope = std::nullopt;
  MlpBranch& mlp = layer.mlps.front();
  mlp.norm.name = layer.name + ".pre_ff_layernorm";
  name_mlp(mlp.mlp, layer.name + ".feed_forward", "gate_proj", "up_proj", "down_proj");
  LayerSpec mamba = layer;
  MambaSpec mixer = mamba_mixer(c, layer.name + ".mamba", spec.hidden_size);
  for (const char* name : {".dt_layernorm", ".b_layernorm", ".c_layernorm"})
    mixer.norms.push_back({.name = mixer.name + name, .params = spec.norm.params});
  mamba.mixers.front().mixer = std::move(mixer);
  spec.kinds.push_back(std::move(mamba));
  const std::vector<bool> attends = read_layers(c, "attn", 8, 4, spec.layers.size());
  for (size_t l = 0; l < spec.layers.size(); ++l) spec.layers[l] = attends[l] ? 0 : 1;
  add_experts(c, spec);
  return spec;
}

}  // namespace

std::vector<Family> jamba_families() { return {{"JambaForCausalLM", "jamba", parse_jamba, {}}}; }

}  // namespace sluice
