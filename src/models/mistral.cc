// MistralForCausalLM (7B, Nemo, Small), MinistralForCausalLM and Ministral3ForCausalLM (Ministral
// 3, Devstral Small 2): Llama's layout, where some or all layers attend to a window; in the last
// queries grow with their position.
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

// Both classes have the same defaults.
constexpr LayoutDefaults kMistralDefaults{.vocab_size = 32000,
                                          .hidden_size = 4096,
                                          .intermediate_size = 14336,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .num_key_value_heads = 8,
                                          .max_position_embeddings = 131072,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 10000};
constexpr int64_t kMistralWindow = 4096;
constexpr LayoutDefaults kMinistral3 = [] {
  LayoutDefaults defaults = kMistralDefaults;
  defaults.vocab_size = 131072;
  defaults.num_hidden_layers = 34;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 262144;
  defaults.rms_norm_eps = 1e-5;
  return defaults;
}();

DecoderSpec parse_mistral(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kMistralDefaults);
  use_windows(spec, read_windows(config, kMistralWindow, std::ssize(spec.layers)));
  return spec;
}

// Without rope fields these are the class's.
RopeConfig ministral3_rope(const JsonFields& config, const RopeConfig& rope) {
  RopeConfig own = rope;
  if (has_rope_fields(config)) return own;
  own.theta = 1000000;
  own.kind = RopeKind::yarn;
  own.factor = 16;
  own.original_positions = 16384;
  return own;
}

DecoderSpec parse_ministral3(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kMinistral3);
  use_windows(spec, read_windows(config, std::nullopt, std::ssize(spec.layers)));
  RopeConfig rope = ministral3_rope(config, spec.ropes.front());
  spec.ropes = {rope, rope};
  spec.ropes[1].position_beta = rope_number(config, "llama_4_scaling_beta", 0.1);
  check_angles(spec.ropes[1], config.where());
  for (LayerSpec& layer : spec.kinds) layer.mixers.front().attention().query_angles = 1;
  return spec;
}

}  // namespace

std::vector<Family> mistral_families() {
  std::vector<std::string_view> ignorable{"vision_tower.*"};
  return {{"MistralForCausalLM", "mistral", parse_mistral, ignorable},
          {"MinistralForCausalLM", "ministral", parse_mistral, ignorable},
          {"Ministral3ForCausalLM", "ministral3", parse_ministral3, {}}};
}

}  // namespace sluice
