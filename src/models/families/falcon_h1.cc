// FalconH1ForCausalLM: Llama's layout, with attention and Mamba-2 side by side on one norm in each
// layer, and multipliers almost everywhere.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families/mamba2.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kFalconH1Defaults{.vocab_size = 128000,
                                           .hidden_size = 4096,
                                           .intermediate_size = 14336,
                                           .num_hidden_layers = 32,
                                           .num_attention_heads = 32,
                                           .num_key_value_heads = 8,
                                           .max_position_embeddings = 8192,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 10000};
constexpr Mamba2Keys kKeys{
    .inner = "mamba_d_ssm", .absent_inner = 1024, .output_bias = "projectors_bias"};

std::vector<double> multipliers(const JsonFields& c, const char* key, size_t count) {
  std::vector<double> all = read_numbers(c, key).value_or(std::vector<double>(count, 1));
  if (all.size() != count)
    fail(ErrorKind::refused, "{}: {} must be {} numbers", c.where(), key, count);
  return all;
}

Mamba2Spec mamba_mixer(const JsonFields& c, const std::string& name, const DecoderSpec& spec) {
  Mamba2Spec mamba = mamba2_mixer(c, name, spec.hidden_size, spec.norm.params, kKeys);
  // Multipliers of the gate, x, B, C and the steps.
  const std::vector<double> of_parts = multipliers(c, "ssm_multipliers", 5);
  for (size_t part : {3, 2, 1, 0, 4})
    mamba.input_multipliers.push_back(static_cast<float>(of_parts[part]));
  if (!read_flag(c, "mamba_rms_norm", false)) mamba.norm = {};
  mamba.gate_first = !read_flag(c, "mamba_norm_before_gate", true);
  return mamba;
}

DecoderSpec parse_falcon_h1(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kFalconH1Defaults);
  LayerSpec& layer = spec.kinds.front();
  MixerBranch mamba{.input = BranchInput::layer_input, .norm = {}};
  mamba.mixer = mamba_mixer(c, layer.name + ".mamba", spec);
  mamba.input_multiplier = read_factor(c, "ssm_in_multiplier", 1);
  mamba.multiplier = read_factor(c, "ssm_out_multiplier", 1);
  MixerBranch& mixer = layer.mixers.front();
  mixer.input_multiplier = read_factor(c, "attention_in_multiplier", 1);
  mixer.multiplier = read_factor(c, "attention_out_multiplier", 1);
  AttentionSpec& attention = mixer.attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.scale =
      read_factor(c, "key_multiplier", 1) / std::sqrt(static_cast<float>(attention.head_dim));
  layer.mixers.push_back(std::move(mamba));
  MlpBranch& branch = layer.mlps.front();
  branch.mlp.up.bias = branch.mlp.down.bias = read_boolean(c, "mlp_bias", false);
  name_mlp(branch.mlp, layer.name + ".feed_forward", "gate_proj", "up_proj", "down_proj");
  branch.norm.name = layer.name + ".pre_ff_layernorm";
  const std::vector<double> of_mlp = multipliers(c, "mlp_multipliers", 2);
  branch.mlp.gate_multiplier = static_cast<float>(of_mlp[0]);
  branch.multiplier = static_cast<float>(of_mlp[1]);
  spec.norm.name = "model.final_layernorm";
  spec.embedding_multiplier = read_factor(c, "embedding_multiplier", 1);
  spec.logit_multiplier = read_factor(c, "lm_head_multiplier", 1);
  return spec;
}

}  // namespace

std::vector<Family> falcon_h1_families() {
  return {{"FalconH1ForCausalLM", "falcon_h1", parse_falcon_h1, {}}};
}

}  // namespace sluice
