// Qwen2ForCausalLM (Qwen2, Qwen2.5) and Qwen3ForCausalLM: Llama's layout; biases on q, k and v in
// the one, norms of each head's q and k in the other, and a window in the upper layers of both
// where config.json asks for it.
#include <algorithm>

#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kQwen2{.vocab_size = 151936,
                                .hidden_size = 4096,
                                .intermediate_size = 22016,
                                .num_hidden_layers = 32,
                                .num_attention_heads = 32,
                                .num_key_value_heads = 32,
                                .max_position_embeddings = 32768,
                                .rms_norm_eps = 1e-6,
                                .rope_theta = 10000};
constexpr LayoutDefaults kQwen3 = [] {
  LayoutDefaults defaults = kQwen2;
  defaults.head_dim = 128;
  return defaults;
}();

std::vector<int64_t> windows(const JsonFields& config, int64_t layers) {
  constexpr int64_t kWindow = 4096;
  if (!read_boolean(config, "use_sliding_window", false))
    return std::vector<int64_t>(static_cast<size_t>(layers), 0);
  std::vector<int64_t> windows = read_windows(config, kWindow, layers);
  config.refuse_null({"max_window_layers"});
  const int64_t full = config.integer_or("max_window_layers", 0, kMaxLayers, 28);
  if (!config.has("layer_types")) std::fill_n(windows.begin(), std::min(full, layers), 0);
  return windows;
}

DecoderSpec parse_qwen2(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kQwen2);
  spec.kinds.front().mixers.front().attention.qkv.bias = true;
  use_windows(spec, windows(config, std::ssize(spec.layers)));
  return spec;
}

DecoderSpec parse_qwen3(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kQwen3);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  use_windows(spec, windows(config, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> qwen_families() {
  return {{"Qwen2ForCausalLM",
           "qwen2",
           parse_qwen2,
           {},
           {"qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl"}},
          {"Qwen3ForCausalLM", "qwen3", parse_qwen3, {}, {"qwen3_vl_text"}}};
}

}  // namespace sluice
