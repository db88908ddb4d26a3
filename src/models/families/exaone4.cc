// Exaone4ForCausalLM (EXAONE 4): Llama's layout, where blocks read the stream as it is and what
// they compute has a norm; norms of each head's q and k; where there are windows, layers without
// one do not rotate.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kExaone4Defaults{.vocab_size = 102400,
                                          .hidden_size = 4096,
                                          .intermediate_size = 16384,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .num_key_value_heads = 32,
                                          .max_position_embeddings = 2048,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000};

DecoderSpec parse_exaone4(const JsonFields& config) {
  constexpr int64_t kWindow = 4096, kPattern = 4;
  DecoderSpec spec = common_layout(config, kExaone4Defaults);
  LayerSpec& layer = spec.kinds.front();
  MixerBranch& mixer = layer.mixers.front();
  mixer.attention().q_norm = {mixer.attention().name + ".q_norm", spec.norm.params};
  mixer.attention().k_norm = {mixer.attention().name + ".k_norm", spec.norm.params};
  norm_outputs(layer);
  const bool typed = config.has("layer_types");  // then the pattern may be letters
  const int64_t each =
      typed ? 0 : config.integer_or("sliding_window_pattern", 1, kMaxLayers, kPattern);
  std::vector<LayerAttention> layers;
  for (int64_t window : read_windows(config, kWindow, std::ssize(spec.layers), each)) {
    const bool turns = window > 0 || config.is_null("sliding_window");
    layers.push_back({.window = window, .rope = turns ? std::optional<size_t>(0) : std::nullopt});
  }
  use_attention(spec, layers);
  return spec;
}

}  // namespace

std::vector<Family> exaone4_families() {
  return {{"Exaone4ForCausalLM", "exaone4", parse_exaone4, {}}};
}

}  // namespace sluice
