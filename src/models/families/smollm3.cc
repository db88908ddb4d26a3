// SmolLM3ForCausalLM: Llama's layout, where every fourth layer does not rotate.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kSmolLm3Defaults{.vocab_size = 128256,
                                          .hidden_size = 2048,
                                          .intermediate_size = 11008,
                                          .num_hidden_layers = 36,
                                          .num_attention_heads = 16,
                                          .num_key_value_heads = 4,
                                          .max_position_embeddings = 32768,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 2000000,
                                          .tie_word_embeddings = true};

// A 1 in no_rope_layers is of a layer that does rotate.
std::vector<bool> rotating(const JsonFields& c, int64_t layers) {
  const int64_t interval = c.integer_or("no_rope_layer_interval", 1, kMaxLayers, 4);
  std::vector<bool> turns;
  for (int64_t l = 1; l <= layers; ++l) turns.push_back(l % interval != 0);
  if (!c.has("no_rope_layers")) return turns;
  const Json& list = c.raw("no_rope_layers");
  if (!list.is_array() || std::ssize(list) != layers ||
      !std::ranges::all_of(list, [](const Json& v) { return v == 0 || v == 1; }))
    fail(ErrorKind::refused, "{}: no_rope_layers must be a list of {} of 0 or 1", c.where(),
         layers);
  for (size_t l = 0; l < turns.size(); ++l) turns[l] = list[l] == 1;
  return turns;
}

DecoderSpec parse_smollm3(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kSmolLm3Defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, "mlp_bias", false);
  const std::vector<bool> turns = rotating(config, std::ssize(spec.layers));
  std::vector<LayerAttention> layers(turns.size());
  if (read_boolean(config, "use_sliding_window", false) || config.has("layer_types")) {
    const std::vector<int64_t> windows = read_windows(config, std::nullopt, std::ssize(turns));
    for (size_t l = 0; l < turns.size(); ++l)
      layers[l].window = config.has("layer_types") || !turns[l] ? windows[l] : 0;
  }
  for (size_t l = 0; l < turns.size(); ++l) {
    if (!turns[l]) layers[l].rope = std::nullopt;
  }
  use_attention(spec, layers);
  return spec;
}

}  // namespace

std::vector<Family> smollm3_families() {
  return {{"SmolLM3ForCausalLM", "smollm3", parse_smollm3, {}}};
}

}  // namespace sluice
