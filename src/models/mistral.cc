// MistralForCausalLM (7B, Nemo, Small) and MinistralForCausalLM: Llama's layout, where some or all
// layers attend to a window.
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/llama.h"

namespace sluice {
namespace {

// Of both classes.
constexpr LlamaDefaults kDefaults{.vocab_size = 32000,
                                  .hidden_size = 4096,
                                  .intermediate_size = 14336,
                                  .num_hidden_layers = 32,
                                  .num_attention_heads = 32,
                                  .num_key_value_heads = 8,
                                  .max_position_embeddings = 131072,
                                  .rms_norm_eps = 1e-6,
                                  .rope_theta = 10000};
constexpr int64_t kWindow = 4096;

DecoderSpec parse_mistral(const JsonFields& config) {
  DecoderSpec spec = llama_layout(config, kDefaults);
  use_windows(spec, read_windows(config, kWindow, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> mistral_families() {
  std::vector<std::string_view> ignorable{"vision_tower.*"};
  return {{"MistralForCausalLM", "mistral", parse_mistral, ignorable},
          {"MinistralForCausalLM", "ministral", parse_mistral, ignorable}};
}

}  // namespace sluice
