// AfmoeForCausalLM (Trinity): Llama's layout with norms before and behind blocks and of each head's
// q and k, a gate of attention's output, windows in most layers, of which alone rotate, and from
// some layer on experts beside a shared one.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kAfmoeDefaults{.vocab_size = 200192,
                                        .hidden_size = 2048,
                                        .intermediate_size = 6144,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 16,
                                        .head_dim = 128,
                                        .max_position_embeddings = 16384,
                                        .rms_norm_eps = 1e-5,
                                        .rope_theta = 10000};

ExpertsSpec afmoe_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, {.absent_count = 64, .absent_top_k = 6});
  const int64_t width = read_size(c, "moe_intermediate_size", 1408, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.router = one_linear(mlp.name + ".router.gate", false);
  experts.choice_bias = mlp.name + ".expert_bias";
  RouterParams& choice = experts.choice;
  choice.score = RouterScore::sigmoid;
  choice.normalized = true;
  choice.added = 1e-20F;
  choice.factor = read_factor(c, "route_scale", 1);
  const int64_t shared = read_size(c, "num_shared_experts", 2, kMostExperts);
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", shared * width);
  return experts;
}

DecoderSpec parse_afmoe(const JsonFields& c) {
  constexpr int64_t kWindow = 1024, kFullEach = 4;
  if (read_boolean(c, "attention_bias", false))
    fail(ErrorKind::refused, "{}: attention_bias is true, which is not supported", c.where());
  DecoderSpec spec = common_layout(c, kAfmoeDefaults);
  LayerSpec& layer = spec.kinds.front();
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  AttentionSpec& attention = mixer.attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.qkv.parts.push_back({attention.name + ".gate_proj"});
  attention.output_gate = Activation::sigmoid;
  mixer.output_norm = {layer.name + ".post_attention_layernorm", spec.norm.params};
  mlp.norm.name = layer.name + ".pre_mlp_layernorm";
  mlp.output_norm = {layer.name + ".post_mlp_layernorm", spec.norm.params};
  const ExpertsSpec experts = afmoe_experts(c, mlp.mlp);
  const auto count = std::ssize(spec.layers);
  const int64_t each = read_size(c, "global_attn_every_n_layers", kFullEach, kMaxLayers);
  std::vector<LayerAttention> layers;
  for (int64_t window : read_windows(c, kWindow, count, each))
    layers.push_back({window, window > 0 ? std::optional<size_t>(0) : std::nullopt});
  use_attention(spec, layers);
  use_experts(spec, experts,
              sparse_from(c.integer_or("num_dense_layers", 0, kMaxLayers, 1), count));
  if (read_flag(c, "mup_enabled", false))
    spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  return spec;
}

}  // namespace

std::vector<Family> afmoe_families() { return {{"AfmoeForCausalLM", "afmoe", parse_afmoe, {}}}; }

}  // namespace sluice
