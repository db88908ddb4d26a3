// Lfm2ForCausalLM (LFM2): Llama's layout under other names, with short convolutions in the place of
// attention in most layers; embedding_norm is the final norm. Lfm2MoeForCausalLM (LFM2 8B-A1B): the
// same with experts from some layer on. Lfm3ForCausalLM (LFM3): windows in some of the layers that
// attend, gates of their heads, and norms of what blocks compute.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLfm2Defaults{.vocab_size = 65536,
                                       .hidden_size = 2560,
                                       .intermediate_size = 12288,
                                       .num_hidden_layers = 32,
                                       .num_attention_heads = 32,
                                       .num_key_value_heads = 8,
                                       .max_position_embeddings = 128000,
                                       .rms_norm_eps = 1e-5,
                                       .rope_theta = 1000000,
                                       .tie_word_embeddings = true,
                                       .eps_key = "norm_eps"};

constexpr LayoutDefaults kLfm2Moe = [] {
  LayoutDefaults defaults = kLfm2Defaults;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 7168;
  return defaults;
}();

// Two thirds of what config.json says, times a factor, in whole units.
int64_t mlp_width(const JsonFields& c, int64_t width) {
  width = read_size(c, "block_ff_dim", width, 4 * kMaxWidth);
  if (!read_boolean(c, "block_auto_adjust_ff_dim", true)) return width;
  width = static_cast<int64_t>(static_cast<double>(2 * width) / 3);
  if (c.is_null("block_ffn_dim_multiplier")) return width;
  const double factor = c.number_or("block_ffn_dim_multiplier", 1);
  const int64_t unit = read_size(c, "block_multiple_of", 256);
  if (!(factor > 0) || factor > 100)
    fail(ErrorKind::refused, "{}: block_ffn_dim_multiplier is {}", c.where(), factor);
  return (static_cast<int64_t>(factor * static_cast<double>(width)) + unit - 1) / unit * unit;
}

// Widths of the convolutions that the classes have by default.
constexpr int64_t kLfm2Width = 3, kLfm3Width = 7;

ShortConvolutionSpec short_convolution(const JsonFields& c, const std::string& name,
                                       int64_t channels, int64_t absent_width) {
  const bool bias = read_boolean(c, "conv_bias", false);
  const std::string input = name + ".in_proj";
  c.refuse_null({"conv_L_cache"});
  const int64_t width = c.integer_or("conv_L_cache", 2, kMostConvWidth, absent_width);
  // Stored are B, C and x of C * convolution(B * x).
  return {
      .name = name,
      .channels = {.size = channels},
      .input = {.name = input,
                .parts = {{input, {.first = channels}}, {input}, {input, {.first = 2 * channels}}},
                .bias = bias},
      .convolution = {.name = name + ".conv", .width = width, .bias = bias, .first = {0}},
      .output = one_linear(name + ".out_proj", bias)};
}

std::vector<size_t> layer_kinds(const JsonFields& c, int64_t layers) {
  std::vector<size_t> kinds = read_layer_types(c, layers, {"full_attention", "conv"});
  if (!kinds.empty()) return kinds;
  const auto attends = read_numbers(c, "full_attn_idxs");
  for (int64_t l = 0; l < layers; ++l)
    kinds.push_back(!attends || std::ranges::count(*attends, static_cast<double>(l)) > 0 ? 0 : 1);
  return kinds;
}

// Two kinds of layers: those that attend, and those with a convolution.
DecoderSpec lfm_layout(const JsonFields& c, const LayoutDefaults& defaults, int64_t absent_width) {
  DecoderSpec spec = common_layout(c, defaults);
  spec.tie_word_embeddings = read_boolean(c, "tie_embedding", spec.tie_word_embeddings);
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().norm.name = layer.name + ".operator_norm";
  MlpBranch& branch = layer.mlps.front();
  branch.norm.name = layer.name + ".ffn_norm";
  name_mlp(branch.mlp, layer.name + ".feed_forward", "w1", "w3", "w2");
  spec.norm.name = "model.embedding_norm";
  LayerSpec convolution = layer;
  convolution.mixers.front().mixer =
      short_convolution(c, layer.name + ".conv", spec.hidden_size, absent_width);
  spec.kinds.push_back(std::move(convolution));
  return spec;
}

DecoderSpec lfm2_layout(const JsonFields& c, const LayoutDefaults& defaults) {
  DecoderSpec spec = lfm_layout(c, defaults, kLfm2Width);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.output = one_linear(attention.name + ".out_proj", false);
  attention.q_norm = {attention.name + ".q_layernorm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_layernorm", spec.norm.params};
  spec.layers = layer_kinds(c, std::ssize(spec.layers));
  return spec;
}

DecoderSpec parse_lfm2(const JsonFields& c) {
  DecoderSpec spec = lfm2_layout(c, kLfm2Defaults);
  for (LayerSpec& layer : spec.kinds) {
    MlpSpec& mlp = layer.mlps.front().mlp;
    mlp.width.size = mlp_width(c, mlp.width.size);
  }
  return spec;
}

DecoderSpec parse_lfm2_moe(const JsonFields& c) {
  DecoderSpec spec = lfm2_layout(c, kLfm2Moe);
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  ExpertsSpec experts = read_experts(c, {.absent_count = 32, .absent_top_k = 4});
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.normalized = read_boolean(c, "norm_topk_prob", true);
  experts.choice.added = 1e-6F;
  experts.choice.factor = read_factor(c, "routed_scaling_factor", 1);
  name_experts(experts, mlp, read_size(c, "moe_intermediate_size", 1792, 4 * kMaxWidth));
  if (read_boolean(c, "use_expert_bias", true)) experts.choice_bias = mlp.name + ".expert_bias";
  const int64_t dense = c.integer_or("num_dense_layers", 0, kMaxLayers, 2);
  use_experts(spec, experts, sparse_from(dense, std::ssize(spec.layers)));
  return spec;
}

constexpr LayoutDefaults kLfm3 = [] {
  LayoutDefaults defaults = kLfm2Defaults;
  defaults.vocab_size = 128000;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 7680;
  defaults.num_hidden_layers = 24;
  defaults.num_attention_heads = 16;
  defaults.num_key_value_heads = 4;
  defaults.head_dim = 128;
  defaults.rope_theta = 10000;
  defaults.rope_layers = "sliding_attention";
  defaults.rope_of_class = true;
  return defaults;
}();

// Layers with a window, and without, have their angles.
enum : size_t { kWindowRope, kFullRope };

void use_lfm3_attention(const JsonFields& c, const NormParams& norm, AttentionSpec& attention) {
  const bool bias = read_boolean(c, "attention_bias", false);
  attention.qkv.bias = attention.output.bias = bias;
  attention.q_norm = {attention.name + ".q_norm", norm};
  attention.k_norm = {attention.name + ".k_norm", norm};
  if (!read_boolean(c, "use_attention_gate", true)) return;
  if (bias)
    fail(ErrorKind::refused, "{}: attention_bias is true beside gates, which is not supported",
         c.where());
  attention.qkv.parts.push_back({attention.name + ".gate_proj"});
  attention.output_gate = Activation::sigmoid;
  attention.gates_heads = true;
}

RopeConfig lfm3_full_rope(const JsonFields& c, int64_t head_dim, int64_t max_positions) {
  RopeConfig rope = parse_rope(c, {.head_dim = head_dim,
                                   .max_positions = max_positions,
                                   .default_theta = 1000000,
                                   .theta_key = has_rope_fields(c) ? "rope_theta" : nullptr,
                                   .layers = "full_attention"});
  if (has_rope_fields(c)) return rope;
  rope.kind = RopeKind::proportional;  // as the class has it
  rope.turning = head_dim / 4;
  return rope;
}

DecoderSpec parse_lfm3(const JsonFields& c) {
  constexpr int64_t kWindow = 256, kPeriod = 4;
  DecoderSpec spec = lfm_layout(c, kLfm3, kLfm3Width);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  use_lfm3_attention(c, spec.norm.params, attention);
  attention.angles = kFullRope;
  spec.ropes.push_back(lfm3_full_rope(c, attention.head_dim, spec.max_positions));
  LayerSpec windowed = spec.kinds.front();
  windowed.mixers.front().attention().angles = kWindowRope;
  windowed.mixers.front().attention().window =
      read_size(c, "sliding_window", kWindow, kMaxPositions);
  spec.kinds.push_back(std::move(windowed));
  enum : size_t { kFull, kConvolution, kWindowed };
  const auto count = std::ssize(spec.layers);
  const std::vector<size_t> kinds =
      read_layer_types(c, count, {"full_attention", "conv", "sliding_attention"});
  for (int64_t l = 0; l < count; ++l) {
    const size_t absent = l % kPeriod == 2            ? kFull
                          : l % kPeriod == 0 && l > 0 ? kWindowed
                                                      : kConvolution;
    const auto i = static_cast<size_t>(l);
    spec.layers[i] = kinds.empty() ? absent : kinds[i];
  }
  if (!read_boolean(c, "use_sandwich_norm", true)) return spec;
  for (LayerSpec& layer : spec.kinds) {
    layer.mixers.front().output_norm = {layer.name + ".post_operator_norm", spec.norm.params};
    layer.mlps.front().output_norm = {layer.name + ".post_ffn_norm", spec.norm.params};
  }
  return spec;
}

}  // namespace

std::vector<Family> lfm2_families() {
  return {{"Lfm2ForCausalLM", "lfm2", parse_lfm2, {}},
          {"Lfm2MoeForCausalLM", "lfm2_moe", parse_lfm2_moe, {}},
          {"Lfm3ForCausalLM", "lfm3", parse_lfm3, {}}};
}

}  // namespace sluice
