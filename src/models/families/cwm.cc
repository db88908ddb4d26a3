// CwmForCausalLM (CWM): Llama's layout with windows in all but each fourth layer, the first one
// among these.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kCwmDefaults{.vocab_size = 128256,
                                      .hidden_size = 6144,
                                      .intermediate_size = 21504,
                                      .num_hidden_layers = 64,
                                      .num_attention_heads = 48,
                                      .num_key_value_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 1000000};

DecoderSpec parse_cwm(const JsonFields& config) {
  constexpr int64_t kWindow = 8192, kFullEach = 4;
  DecoderSpec spec = common_layout(config, kCwmDefaults);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, "mlp_bias", false);
  RopeConfig& rope = spec.ropes.front();
  if (!has_rope_fields(config)) {
    rope.theta = kCwmDefaults.rope_theta;
    rope.kind = RopeKind::llama3;
    rope.factor = 16;
    rope.original_positions = 8192;
  }
  std::vector<int64_t> windows = read_windows(config, kWindow, std::ssize(spec.layers));
  for (size_t l = 0; l < windows.size() && !config.has("layer_types"); l += kFullEach)
    windows[l] = 0;
  use_windows(spec, windows);
  return spec;
}

}  // namespace

std::vector<Family> cwm_families() { return {{"CwmForCausalLM", "cwm", parse_cwm, {}}}; }

}  // namespace sluice
