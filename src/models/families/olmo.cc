// OlmoForCausalLM (OLMo 1): Llama's layout with layer norms without weights.
// Olmo2ForCausalLM and Olmo3ForCausalLM (OLMo 2 and 3): Llama's layout, where blocks read the
// stream as it is and what they compute has a norm; all of q and all of k have a norm. The second
// has windows, whose layers rotate without a scaling. OlmoeForCausalLM (OLMoE): Llama's layout with
// those norms of q and k, and experts in the place of the MLP; FlexOlmoForCausalLM (FlexOlmo) the
// same with OLMo 2's.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Olmo2Config and Olmo3Config have the same defaults.
constexpr LayoutDefaults kOlmoDefaults{.vocab_size = 50304,
                                       .hidden_size = 4096,
                                       .intermediate_size = 11008,
                                       .num_hidden_layers = 32,
                                       .num_attention_heads = 32,
                                       .max_position_embeddings = 2048,
                                       .rms_norm_eps = 1e-5,
                                       .rope_theta = 10000};
constexpr LayoutDefaults kOlmo3 = [] {
  LayoutDefaults defaults = kOlmoDefaults;
  defaults.rope_theta = 500000;
  defaults.rope_layers = "full_attention";
  return defaults;
}();

constexpr LayoutDefaults kOlmoe = [] {
  LayoutDefaults defaults = kOlmoDefaults;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 2048;
  defaults.num_hidden_layers = 16;
  defaults.num_attention_heads = 16;
  defaults.max_position_embeddings = 4096;
  return defaults;
}();

DecoderSpec parse_olmo(const JsonFields& config) {
  LayoutDefaults defaults = kOlmoDefaults;
  defaults.norm = NormKind::layer;
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.clip = read_cap(config, "clip_qkv", 0);
  each_norm(spec, [](NormSpec& norm) {
    norm.weight = false;
    norm.params.eps = 1e-5F;
  });
  return spec;
}

DecoderSpec olmo_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  attention.head_norms = HeadNorms::row;
  return spec;
}

DecoderSpec parse_olmo2(const JsonFields& config) {
  DecoderSpec spec = olmo_layout(config, kOlmoDefaults);
  norm_outputs(spec.kinds.front());
  return spec;
}

DecoderSpec experts_layout(const JsonFields& config, const LayoutDefaults& defaults,
                           const ExpertKeys& keys) {
  DecoderSpec spec = olmo_layout(config, defaults);
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  ExpertsSpec experts = read_experts(config, keys);
  experts.choice.normalized = read_boolean(config, "norm_topk_prob", false);
  name_experts(experts, mlp, mlp.width.size);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

DecoderSpec parse_olmoe(const JsonFields& config) {
  DecoderSpec spec = experts_layout(config, kOlmoe, {.absent_count = 64, .absent_top_k = 8});
  for (LayerSpec& layer : spec.kinds)
    layer.mixers.front().attention().clip = read_cap(config, "clip_qkv", 0);
  return spec;
}

DecoderSpec parse_flex_olmo(const JsonFields& config) {
  LayoutDefaults defaults = kOlmoDefaults;
  defaults.vocab_size = 100352;
  defaults.max_position_embeddings = 4096;
  defaults.rms_norm_eps = 1e-6;
  defaults.rope_theta = 500000;
  DecoderSpec spec = experts_layout(config, defaults, {.absent_count = 7, .absent_top_k = 5});
  norm_outputs(spec.kinds.front());
  return spec;
}

DecoderSpec parse_olmo3(const JsonFields& config) {
  constexpr int64_t kWindow = 4096, kFullEach = 4;
  DecoderSpec spec = olmo_layout(config, kOlmo3);
  norm_outputs(spec.kinds.front());
  const AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  spec.ropes.push_back(parse_rope(config, {.head_dim = attention.head_dim,
                                           .max_positions = spec.max_positions,
                                           .default_theta = kOlmo3.rope_theta,
                                           .theta_key = nullptr,
                                           .layers = "sliding_attention"}));
  use_windows(spec, read_windows(config, kWindow, std::ssize(spec.layers), kFullEach), 1);
  return spec;
}

}  // namespace

std::vector<Family> olmo_families() {
  return {{"OlmoForCausalLM", "olmo", parse_olmo, {}},
          {"FlexOlmoForCausalLM", "flex_olmo", parse_flex_olmo, {}},
          {"Olmo2ForCausalLM", "olmo2", parse_olmo2, {}},
          {"Olmo3ForCausalLM", "olmo3", parse_olmo3, {}},
          {"OlmoeForCausalLM", "olmoe", parse_olmoe, {}}};
}

}  // namespace sluice
