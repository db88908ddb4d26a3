// OrionForCausalLM (Orion 14B): Llama's layout with layer norms.
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Defaults of the class that checkpoints bring along.
constexpr LayoutDefaults kOrion{.vocab_size = 84608,
                                .hidden_size = 4096,
                                .intermediate_size = 15360,
                                .num_hidden_layers = 40,
                                .num_attention_heads = 40,
                                .num_key_value_heads = 40,
                                .max_position_embeddings = 4096,
                                .rms_norm_eps = 1e-5,
                                .rope_theta = 10000,
                                .norm = NormKind::layer,
                                .norm_bias = true};

DecoderSpec parse_orion(const JsonFields& c) { return common_layout(c, kOrion); }

}  // namespace

std::vector<Family> orion_families() { return {{"OrionForCausalLM", "orion", parse_orion, {}}}; }

}  // namespace sluice
