// JambaForCausalLM, without experts: Llama's layout, with Mamba in the place of attention in most
// layers, and no rope in the others.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"
#include "src/models/mamba.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kDefaults{.vocab_size = 65536,
                                   .hidden_size = 4096,
                                   .intermediate_size = 14336,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 32,
                                   .num_key_value_heads = 8,
                                   .max_position_embeddings = 262144,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000};

DecoderSpec parse_jamba(const JsonFields& c) {
  c.refuse_null({"num_experts", "attn_layer_period", "attn_layer_offset"});
  if (c.integer_or("num_experts", 0, kMaxWidth, 16) > 1)
    fail(ErrorKind::refused, "{}: num_experts: experts are not supported yet", c.where());
  DecoderSpec spec = common_layout(c, kDefaults);
  spec.ropes.clear();
  spec.norm.name = "model.final_layernorm";
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().attention.rope = std::nullopt;
  MlpBranch& mlp = layer.mlps.front();
  mlp.norm.name = layer.name + ".pre_ff_layernorm";
  name_mlp(mlp.mlp, layer.name + ".feed_forward", "gate_proj", "up_proj", "down_proj");
  LayerSpec mamba = layer;
  StateMixerSpec mixer = mamba_mixer(c, layer.name + ".mamba", spec.hidden_size);
  for (const char* name : {".dt_layernorm", ".b_layernorm", ".c_layernorm"})
    mixer.selective.norms.push_back({.name = mixer.name + name, .params = spec.norm.params});
  mamba.mixers.front().state = std::move(mixer);
  spec.kinds.push_back(std::move(mamba));
  const auto period = static_cast<size_t>(c.integer_or("attn_layer_period", 1, kMaxLayers, 8));
  const auto offset = static_cast<size_t>(c.integer_or("attn_layer_offset", 0, kMaxLayers, 4));
  if (offset >= period)
    fail(ErrorKind::refused, "{}: attn_layer_offset ({}) must be below attn_layer_period ({})",
         c.where(), offset, period);
  for (size_t l = 0; l < spec.layers.size(); ++l) spec.layers[l] = l % period == offset ? 0 : 1;
  return spec;
}

}  // namespace

std::vector<Family> jamba_families() { return {{"JambaForCausalLM", "jamba", parse_jamba, {}}}; }

}  // namespace sluice
