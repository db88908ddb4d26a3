// OlmoForCausalLM (OLMo 1): Llama's layout with layer norms without weights.
// Olmo2ForCausalLM and Olmo3ForCausalLM (OLMo 2 and 3): Llama's layout, where blocks read the
// stream as it is and what they compute has a norm; all of q and all of k have a norm. The second
// has windows, whose layers rotate without a scaling. OlmoeForCausalLM (OLMoE): Llama's layout with
// those norms of q and k, and experts in the place of the MLP; FlexOlmoForCausalLM (FlexOlmo) the
// same with OLMo 2's. OlmoHybridForCausalLM (OLMo Hybrid): OLMo 2's, with a gated DeltaNet
// (arXiv:2412.06464) in the place of attention in most layers, whose blocks have a norm before
// them.
#include <algorithm>

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

constexpr LayoutDefaults kOlmoHybrid = [] {
  LayoutDefaults defaults = kOlmoDefaults;
  defaults.vocab_size = 100352;
  defaults.hidden_size = 3840;
  defaults.num_attention_heads = 30;
  defaults.max_position_embeddings = 65536;
  defaults.rms_norm_eps = 1e-6;
  return defaults;
}();

// Sizes of the mixer, which by default follow from those of attention.
GatedDeltaNetSpec olmo_delta_net(const JsonFields& c, const std::string& name, int64_t hidden_size,
                                 int64_t heads) {
  constexpr float kNormEps = 1e-5F;                                  // whatever config.json says
  if (read_activation(c, "hidden_act", "silu") != Activation::silu)  // it is the convolution's, too
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  const auto read = [&](const char* key, int64_t absent) {
    return c.is_null(key) ? absent : read_size(c, key, absent);
  };
  const int64_t key_heads = read("linear_num_key_heads", heads);
  const int64_t value_heads = read("linear_num_value_heads", heads);
  const int64_t key_dim =
      read("linear_key_head_dim", std::max<int64_t>(1, 3 * hidden_size / (4 * key_heads)));
  const int64_t value_dim = read("linear_value_head_dim", 2 * key_dim);
  c.refuse_null({"linear_conv_kernel_dim"});
  const int64_t width = c.integer_or("linear_conv_kernel_dim", 2, kMostConvWidth, 4);
  if (key_heads * key_dim > kMaxWidth || value_heads * value_dim > kMaxWidth ||
      value_heads % key_heads != 0)
    fail(ErrorKind::refused,
         "{}: linear_num_key_heads ({}) must divide linear_num_value_heads ({}), and their sizes "
         "not be absurd",
         c.where(), key_heads, value_heads);
  const bool to_two = read_boolean(c, "linear_allow_neg_eigval", true);  // steps up to 2
  const auto part = [&](const char* of) { return PartSpec{name + of}; };
  return {.name = name,
          .heads = {.size = value_heads * value_dim, .unit = value_dim},
          .key_heads = {.size = key_heads * key_dim, .unit = key_dim},
          .key_dim = key_dim,
          .value_dim = value_dim,
          .input = {.name = name + ".in_proj",
                    .parts = {part(".q_proj"), part(".k_proj"), part(".v_proj"), part(".g_proj"),
                              part(".a_proj"), part(".b_proj")}},
          .convolution = {.name = name + ".conv1d",
                          .width = width,
                          .silu = true,
                          .first = {0, 0, 0},
                          .sources = {name + ".q_conv1d", name + ".k_conv1d", name + ".v_conv1d"}},
          .log_rates = name + ".A_log",
          .step_bias = name + ".dt_bias",
          .step_multiplier = to_two ? 2.0F : 1.0F,
          .norm = {name + ".o_norm", {.eps = kNormEps}},
          .output = one_linear(name + ".o_proj", false)};
}

DecoderSpec parse_olmo_hybrid(const JsonFields& c) {
  DecoderSpec spec = olmo_layout(c, kOlmoHybrid);
  LayerSpec linear = spec.kinds.front();
  norm_outputs(spec.kinds.front());
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  if (c.is_null("rope_parameters")) {
    attention.rope = std::nullopt;
    spec.ropes.clear();
  }
  linear.mixers.front().norm.name = linear.name + ".attention_layer_norm";
  linear.mlps.front().norm.name = linear.name + ".feedforward_layer_norm";
  spec.other_names = {{linear.name + ".post_attention_layernorm", linear.mlps.front().norm.name}};
  linear.mixers.front().mixer =
      olmo_delta_net(c, linear.name + ".linear_attn", spec.hidden_size, attention.heads.units());
  spec.kinds.push_back(std::move(linear));
  const auto count = std::ssize(spec.layers);
  const std::vector<size_t> kinds =
      read_layer_types(c, count, {"full_attention", "linear_attention"});
  constexpr int64_t kFullEach = 4;
  for (int64_t l = 0; l < count; ++l) {
    const bool attends = (l + 1) % kFullEach == 0 || (count < kFullEach && l + 1 == count);
    const auto i = static_cast<size_t>(l);
    spec.layers[i] = kinds.empty() ? (attends ? 0 : 1) : kinds[i];
  }
  return spec;
}

}  // namespace

std::vector<Family> olmo_families() {
  return {{"OlmoForCausalLM", "olmo", parse_olmo, {}},
          {"FlexOlmoForCausalLM", "flex_olmo", parse_flex_olmo, {}},
          {"Olmo2ForCausalLM", "olmo2", parse_olmo2, {}},
          {"Olmo3ForCausalLM", "olmo3", parse_olmo3, {}},
          {"OlmoeForCausalLM", "olmoe", parse_olmoe, {}},
          {"OlmoHybridForCausalLM", "olmo_hybrid", parse_olmo_hybrid, {}}};
}

}  // namespace sluice
