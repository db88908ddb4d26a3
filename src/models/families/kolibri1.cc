// Kolibri1ForCausalLM (Kolibri 1): Llama's layout with norms before and behind blocks and of each
// head's q and k, windows in most layers, which alone rotate, and in the place of the MLP experts
// beside a shared one, chosen by logits with a bias.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kKolibri1{.vocab_size = 128000,
                                   .hidden_size = 2560,
                                   .num_hidden_layers = 50,
                                   .num_attention_heads = 48,
                                   .num_key_value_heads = 4,
                                   .head_dim = 128,
                                   .max_position_embeddings = 262144,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000};

ExpertsSpec kolibri1_experts(const JsonFields& c, const std::string& layer, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, {.absent_count = 384, .absent_top_k = 6});
  name_experts(experts, mlp, read_size(c, "moe_intermediate_size", 512, 4 * kMaxWidth));
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.chooses_logits = true;
  experts.choice.normalized = read_boolean(c, "norm_topk_prob", false);
  experts.choice_bias = layer + ".moe.router.expert_bias";
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts",
                            read_size(c, "shared_expert_intermediate_size", 512, 4 * kMaxWidth));
  return experts;
}

DecoderSpec parse_kolibri1(const JsonFields& c) {
  constexpr int64_t kWindow = 513, kFullEach = 5;
  DecoderSpec spec = common_layout(c, kKolibri1);
  LayerSpec& layer = spec.kinds.front();
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  AttentionSpec& attention = mixer.attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  mixer.output_norm = {layer.name + ".post_attn_norm", spec.norm.params};
  mlp.output_norm = {layer.name + ".post_ffn_norm", spec.norm.params};
  mlp.experts = kolibri1_experts(c, layer.name, mlp.mlp);
  const bool all_turn = c.is_null("sliding_window");
  std::vector<LayerAttention> layers;
  for (int64_t window : read_windows(c, kWindow, std::ssize(spec.layers), kFullEach))
    layers.push_back({window, window > 0 || all_turn ? std::optional<size_t>(0) : std::nullopt});
  use_attention(spec, layers);
  return spec;
}

}  // namespace

std::vector<Family> kolibri1_families() {
  return {{"Kolibri1ForCausalLM", "kolibri1", parse_kolibri1, {}}};
}

}  // namespace sluice
