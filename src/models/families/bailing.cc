// BailingMoeForCausalLM (Ling-lite, Ling-plus) and BailingMoeV2ForCausalLM (Ling 2.0, Ring 2.0):
// Llama's layout with q, k and v in one tensor, and from some layer on experts beside a shared one;
// in the second norms of each head's q and k, rope on a part of each head, and experts that are
// chosen by sigmoids with a bias, in groups. SarvamMoEForCausalLM (Sarvam 30B): the second with
// other keys.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Defaults of the classes that checkpoints bring along.
constexpr LayoutDefaults kBailing{.vocab_size = 30592,
                                  .hidden_size = 1024,
                                  .intermediate_size = 2048,
                                  .num_hidden_layers = 24,
                                  .num_attention_heads = 16,
                                  .max_position_embeddings = 16384,
                                  .rms_norm_eps = 1e-5,
                                  .rope_theta = 10000};
constexpr LayoutDefaults kBailingV2 = [] {
  LayoutDefaults defaults = kBailing;
  defaults.vocab_size = 157184;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5120;
  defaults.num_hidden_layers = 20;
  defaults.num_key_value_heads = 4;
  defaults.max_position_embeddings = 32768;
  defaults.rms_norm_eps = 1e-6;
  defaults.rope_theta = 600000;
  defaults.part_key = "partial_rotary_factor";
  defaults.part = 0.5;
  return defaults;
}();

DecoderSpec bailing_layout(const JsonFields& c, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.name = layer.name + ".attention";
  fuse(attention.qkv, attention.name + ".query_key_value",
       {0, attention.heads.size, attention.heads.size + attention.kv_heads.size});
  attention.qkv.bias = read_boolean(c, "use_qkv_bias", false);
  attention.output = one_linear(attention.name + ".dense", read_boolean(c, "use_bias", false));
  spec.embedding = "model.word_embeddings";
  return spec;
}

struct BailingExperts {
  int64_t count = 0;
  int64_t top_k = 0;
  int64_t width = 0;
  int64_t shared = 0;
};
// The class says how the experts are chosen; the config does not.
ExpertsSpec bailing_experts(const JsonFields& c, const MlpSpec& mlp, const BailingExperts& absent) {
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_experts", "num_local_experts", "n_routed_experts"},
                       .absent_count = absent.count,
                       .absent_top_k = absent.top_k});
  const int64_t width = read_size(c, "moe_intermediate_size", absent.width, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  const int64_t shared = c.integer_or(present(c, "num_shared_experts", "n_shared_experts"), 0,
                                      kMostExperts, absent.shared);
  if (shared > 0) {
    const int64_t each =
        c.integer_or("moe_shared_expert_intermediate_size", 1, 4 * kMaxWidth, width);
    experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", each * shared);
  }
  return experts;
}

DecoderSpec parse_bailing_moe(const JsonFields& c) {
  DecoderSpec spec = bailing_layout(c, kBailing);
  ExpertsSpec experts = bailing_experts(c, spec.kinds.front().mlps.front().mlp,
                                        {.count = 16, .top_k = 2, .width = 2048});
  experts.choice.normalized = read_boolean(c, "norm_topk_prob", true);
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 0);
  use_experts(spec, experts, sparse_from(dense, std::ssize(spec.layers)));
  return spec;
}

void use_grouped_experts(const JsonFields& c, ExpertsSpec experts, const GroupedChoice& absent,
                         DecoderSpec& spec) {
  read_grouped_choice(c, absent, experts);
  if (read_boolean(c, "moe_router_enable_expert_bias", true))
    experts.choice_bias = experts.name + ".gate.expert_bias";
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 1);
  use_experts(spec, experts, sparse_from(dense, std::ssize(spec.layers)));
  const int64_t more = c.integer_or("num_nextn_predict_layers", 0, kMaxLayers, 0);
  for (int64_t l = 0; l < more; ++l)
    spec.ignorable.push_back(name_in_layer("model.layers.{}.*", std::ssize(spec.layers) + l));
}

void use_head_norms(const JsonFields& c, DecoderSpec& spec) {
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  if (!read_boolean(c, "use_qk_norm", true)) return;
  attention.q_norm = {attention.name + ".query_layernorm", spec.norm.params};
  attention.k_norm = {attention.name + ".key_layernorm", spec.norm.params};
}

DecoderSpec parse_bailing_moe_v2(const JsonFields& c) {
  DecoderSpec spec = bailing_layout(c, kBailingV2);
  use_head_norms(c, spec);
  const ExpertsSpec experts = bailing_experts(c, spec.kinds.front().mlps.front().mlp,
                                              {.count = 256, .top_k = 8, .width = 512});
  use_grouped_experts(c, experts, {.groups = 8, .top_k_groups = 4, .factor = 2.5}, spec);
  return spec;
}

constexpr LayoutDefaults kSarvam{.vocab_size = 262144,
                                 .hidden_size = 4096,
                                 .intermediate_size = 8192,
                                 .num_hidden_layers = 19,
                                 .num_attention_heads = 64,
                                 .num_key_value_heads = 4,
                                 .head_dim = 64,
                                 .max_position_embeddings = 131072,
                                 .rms_norm_eps = 1e-6,
                                 .rope_theta = 8000000,
                                 .part_key = "partial_rotary_factor"};

DecoderSpec parse_sarvam_moe(const JsonFields& c) {
  DecoderSpec spec = bailing_layout(c, kSarvam);
  spec.kinds.front().mixers.front().attention().qkv.bias =
      read_boolean(c, present(c, "attention_bias", "use_qkv_bias"), false);
  use_head_norms(c, spec);
  const ExpertsSpec experts =
      bailing_experts(c, spec.kinds.front().mlps.front().mlp,
                      {.count = 128, .top_k = 6, .width = 1024, .shared = 1});
  use_grouped_experts(c, experts, {.factor = 2.5}, spec);
  return spec;
}

}  // namespace

std::vector<Family> bailing_families() {
  return {{"BailingMoeForCausalLM", "bailing_moe", parse_bailing_moe, {}},
          {"BailingMoeV2ForCausalLM", "bailing_moe_v2", parse_bailing_moe_v2, {}},
          {"SarvamMoEForCausalLM", "sarvam_moe", parse_sarvam_moe, {}, {}, false, true}};
}

}  // namespace sluice
