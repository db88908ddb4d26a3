// MistralForCausalLM (7B, Nemo, Small) and MinistralForCausalLM: Llama's layout, where some or all
// layers attend to a window.
#include "src/models/families.h"

namespace sluice {
namespace {

// Of both classes.
constexpr ConfigDefaults kDefaults{.vocab_size = 32000,
                                   .hidden_size = 4096,
                                   .intermediate_size = 14336,
                                   .num_hidden_layers = 32,
                                   .num_attention_heads = 32,
                                   .num_key_value_heads = 8,
                                   .max_position_embeddings = 131072,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000,
                                   .hidden_act = "silu",
                                   .tie_word_embeddings = false,
                                   .sliding_window = 4096};

DecoderConfig parse_mistral(const JsonFields& config) {
  DecoderConfig c = parse_decoder_config(config, kDefaults);
  c.windows = parse_windows(config, kDefaults, c.layers);
  return c;
}

}  // namespace

std::vector<Family> mistral_families() {
  std::vector<std::string_view> ignorable{"vision_tower.*"};
  return {{"MistralForCausalLM", "mistral", parse_mistral, ignorable},
          {"MinistralForCausalLM", "ministral", parse_mistral, ignorable}};
}

}  // namespace sluice
