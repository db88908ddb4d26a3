// MistralForCausalLM (7B, Nemo, Small) and MinistralForCausalLM: Llama's layout, where some or all
// layers attend to a window.
#include "src/models/families.h"

namespace sluice {
namespace {

DecoderConfig parse_mistral(const JsonFields& config) {
  DecoderConfig c = parse_decoder_config(config);
  c.windows = parse_windows(config, c.layers);
  return c;
}

}  // namespace

std::vector<Family> mistral_families() {
  std::vector<std::string_view> ignorable{"*.rotary_emb.inv_freq", "vision_tower.*"};
  return {{"MistralForCausalLM", parse_mistral, ignorable},
          {"MinistralForCausalLM", parse_mistral, ignorable}};
}

}  // namespace sluice
