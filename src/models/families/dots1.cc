// Dots1ForCausalLM (dots.llm1): Llama's layout with norms of each head's q and k, windows where
// config.json asks for them, and from some layer on experts beside a shared one.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kDots1Defaults{.vocab_size = 152064,
                                        .hidden_size = 4608,
                                        .intermediate_size = 10944,
                                        .num_hidden_layers = 62,
                                        .num_attention_heads = 32,
                                        .num_key_value_heads = 32,
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-6,
                                        .rope_theta = 10000};

DecoderSpec parse_dots1(const JsonFields& c) {
  for (const char* key : {"n_routed_experts", "num_experts_per_tok", "n_shared_experts"}) {
    if (!c.has(key) || c.is_null(key))
      fail(ErrorKind::refused, "{}: {} is missing", c.where(), key);
  }
  DecoderSpec spec = common_layout(c, kDots1Defaults);
  const auto layers = std::ssize(spec.layers);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  ExpertsSpec experts = read_experts(c, {.count = {"n_routed_experts"}});
  read_grouped_choice(c, {.normalized = false}, experts);
  const MlpSpec& mlp = layer.mlps.front().mlp;
  const int64_t width = read_size(c, "moe_intermediate_size", 1408, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.choice_bias = mlp.name + ".gate.e_score_correction_bias";
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts",
                            width * read_size(c, "n_shared_experts", 1, kMostExperts));
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 0);
  use_windows(spec, read_upper_windows(c, 4096, layers, 62));
  use_experts(spec, experts, sparse_from(dense, layers));
  return spec;
}

}  // namespace

std::vector<Family> dots1_families() { return {{"Dots1ForCausalLM", "dots1", parse_dots1, {}}}; }

}  // namespace sluice
