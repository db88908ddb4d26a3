// NemotronForCausalLM (Nemotron-4, Minitron) and Jais2ForCausalLM (Jais 2): Llama's layout with
// layer norms, of 1 + w in the first, and a plain MLP; the first rotates a part of each head.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kNemotron{.vocab_size = 256000,
                                   .hidden_size = 6144,
                                   .intermediate_size = 24576,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 48,
                                   .max_position_embeddings = 4096,
                                   .rms_norm_eps = 1e-5,
                                   .rope_theta = 10000,
                                   .hidden_act = "relu2",
                                   .part_key = "partial_rotary_factor",
                                   .part = 0.5,
                                   .eps_key = "norm_eps",
                                   .norm = NormKind::layer,
                                   .norm_bias = true};
constexpr LayoutDefaults kJais2 = [] {
  LayoutDefaults defaults = kNemotron;
  defaults.vocab_size = 150272;
  defaults.hidden_size = 3328;
  defaults.intermediate_size = 26624;
  defaults.num_attention_heads = 26;
  defaults.max_position_embeddings = 8192;
  defaults.part_key = nullptr;
  defaults.eps_key = "layer_norm_eps";
  return defaults;
}();

DecoderSpec nemotron_layout(const JsonFields& config, const LayoutDefaults& defaults, bool biases) {
  DecoderSpec spec = common_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", biases);
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, "mlp_bias", biases);
  use_plain_mlp(mlp, "up_proj", "down_proj");
  return spec;
}

DecoderSpec parse_nemotron(const JsonFields& config) {
  DecoderSpec spec = nemotron_layout(config, kNemotron, false);
  each_norm(spec, [](NormSpec& norm) { norm.params.weight_offset = 1; });
  return spec;
}

DecoderSpec parse_jais2(const JsonFields& config) { return nemotron_layout(config, kJais2, true); }

}  // namespace

std::vector<Family> nemotron_families() {
  return {{"NemotronForCausalLM", "nemotron", parse_nemotron, {}},
          {"Jais2ForCausalLM", "jais2", parse_jais2, {}}};
}

}  // namespace sluice
