// BambaForCausalLM: Llama's layout, with Mamba-2 in the place of attention in most layers, and rope
// on half of each head in the others.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families/mamba2.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kBambaDefaults{.vocab_size = 128000,
                                        .hidden_size = 4096,
                                        .intermediate_size = 14336,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .num_key_value_heads = 8,
                                        .max_position_embeddings = 262144,
                                        .rms_norm_eps = 1e-5,
                                        .rope_theta = 10000,
                                        .part_key = "partial_rotary_factor",
                                        .part = 0.5};

// The class rotates half of each head, whatever stands outside of the rope fields.
DecoderSpec bamba_layout(const JsonFields& c) {
  Json config = c.object();
  config.erase(kBambaDefaults.part_key);
  return common_layout(JsonFields(config, c.where()), kBambaDefaults);
}

DecoderSpec parse_bamba(const JsonFields& c) {
  DecoderSpec spec = bamba_layout(c);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  MlpBranch& branch = layer.mlps.front();
  branch.mlp.up.bias = branch.mlp.down.bias = read_boolean(c, "mlp_bias", false);
  name_mlp(branch.mlp, layer.name + ".feed_forward", "gate_proj", "up_proj", "down_proj");
  branch.norm.name = layer.name + ".pre_ff_layernorm";
  spec.norm.name = "model.final_layernorm";
  LayerSpec mamba = layer;
  mamba.mixers.front().mixer =
      mamba2_mixer(c, layer.name + ".mamba", spec.hidden_size, spec.norm.params);
  spec.kinds.push_back(std::move(mamba));
  const auto attends = read_numbers(c, "attn_layer_indices").value_or(std::vector<double>());
  for (size_t l = 0; l < spec.layers.size(); ++l)
    spec.layers[l] = std::ranges::count(attends, static_cast<double>(l)) > 0 ? 0 : 1;
  return spec;
}

}  // namespace

std::vector<Family> bamba_families() { return {{"BambaForCausalLM", "bamba", parse_bamba, {}}}; }

}  // namespace sluice
