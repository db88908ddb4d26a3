// MixtralForCausalLM (Mixtral 8x7B, 8x22B): Mistral's layout, with experts in the place of the MLP.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kMixtralDefaults{.vocab_size = 32000,
                                          .hidden_size = 4096,
                                          .intermediate_size = 14336,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .num_key_value_heads = 8,
                                          .max_position_embeddings = 131072,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 1000000};

DecoderSpec parse_mixtral(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kMixtralDefaults);
  const auto layers = std::ssize(spec.layers);
  ExpertsSpec experts = read_experts(c, {.absent_count = 8, .absent_top_k = 2});
  experts.choice.normalized = true;
  LayerSpec& layer = spec.kinds.front();
  MlpSpec& mlp = layer.mlps.front().mlp;
  name_mlp(mlp, layer.name + ".block_sparse_moe", "w1", "w3", "w2");
  name_experts(experts, mlp, mlp.width.size);
  use_windows(spec, read_windows(c, std::nullopt, layers));
  use_experts(spec, experts, sparse_from(0, layers));
  return spec;
}

}  // namespace

std::vector<Family> mixtral_families() {
  return {{"MixtralForCausalLM", "mixtral", parse_mixtral, {}}};
}

}  // namespace sluice
