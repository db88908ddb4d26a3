// Olmo2ForCausalLM and Olmo3ForCausalLM (OLMo 2 and 3): Llama's layout, where blocks read the
// stream as it is and what they compute has a norm; all of q and all of k have a norm. The second
// has windows, whose layers rotate without a scaling.
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

// Of both classes.
constexpr LayoutDefaults kDefaults{.vocab_size = 50304,
                                   .hidden_size = 4096,
                                   .intermediate_size = 11008,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 32,
                                   .max_position_embeddings = 2048,
                                   .rms_norm_eps = 1e-5,
                                   .rope_theta = 10000};
constexpr LayoutDefaults kOlmo3 = [] {
  LayoutDefaults defaults = kDefaults;
  defaults.rope_theta = 500000;
  defaults.rope_layers = "full_attention";
  return defaults;
}();

DecoderSpec olmo_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.head_norms = HeadNorms::row;
  norm_outputs(layer);
  return spec;
}

DecoderSpec parse_olmo2(const JsonFields& config) { return olmo_layout(config, kDefaults); }

DecoderSpec parse_olmo3(const JsonFields& config) {
  constexpr int64_t kWindow = 4096, kFullEach = 4;
  DecoderSpec spec = olmo_layout(config, kOlmo3);
  const AttentionSpec& attention = spec.kinds.front().mixers.front().attention;
  spec.ropes.push_back(parse_rope(config, {.head_dim = attention.head_dim,
                                           .max_positions = spec.max_positions,
                                           .default_theta = kOlmo3.rope_theta,
                                           .theta_key = nullptr,
                                           .layers = "sliding_attention"}));
  use_windows(spec, read_windows(config, kWindow, std::ssize(spec.layers), kFullEach), 1);
  return spec;
}

}  // namespace

std::vector<Family> olmo_families() {
  return {{"Olmo2ForCausalLM", "olmo2", parse_olmo2, {}},
          {"Olmo3ForCausalLM", "olmo3", parse_olmo3, {}}};
}

}  // namespace sluice
