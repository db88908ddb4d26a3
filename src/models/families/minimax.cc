// MiniMaxForCausalLM (MiniMax-Text-01, MiniMax-M1): Mixtral's layout, where blocks read the stream
// through a norm that replaces it, and lightning attention in some layers.
#include <fmt/format.h>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kMiniMax{.vocab_size = 32000,
                                  .hidden_size = 4096,
                                  .intermediate_size = 14336,
                                  .num_hidden_layers = 32,
                                  .num_attention_heads = 32,
                                  .num_key_value_heads = 8,
                                  .max_position_embeddings = 131072,
                                  .rms_norm_eps = 1e-5,
                                  .rope_theta = 1000000};

enum : size_t { kMiniMaxFull, kMiniMaxLinear };

// Each head has the rows of its queries, then those of its keys and values.
LightningSpec lightning_attention(const AttentionSpec& attention, Activation activation,
                                  size_t layers) {
  const std::string& name = attention.name;
  const std::string qkv = name + ".qkv_proj";
  const int64_t d = attention.head_dim;
  const auto part = [&](int64_t number) {
    return PartSpec{qkv, {.first = number * d, .group = d, .stride = 3 * d}};
  };
  LightningSpec mixer{.name = name,
                      .heads = attention.heads,
                      .input = {.name = name + ".in_proj",
                                .parts = {part(0), part(1), part(2), {name + ".output_gate"}}},
                      .activation = activation,
                      .norm = {name + ".norm", {.eps = 1e-6F}},  // whatever rms_norm_eps says
                      .output = one_linear(name + ".out_proj", false)};
  for (size_t l = 0; l < layers; ++l) {
    const double share = static_cast<double>(l) / (static_cast<double>(layers) - 1 + 1e-5);
    mixer.factors.push_back(static_cast<float>(1 - share + 1e-5));
  }
  return mixer;
}

// The stream is what the norm of a block gives, times alpha, and the block's output times beta.
void norm_stream_before(const JsonFields& c, LayerSpec& layer, bool is_linear) {
  const auto read = [&](const char* of, const char* factor) {
    return read_factor(c, fmt::format("{}_{}_factor", of, factor).c_str(), 1);
  };
  const char* attention = is_linear ? "linear_attn" : "full_attn";
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  mixer.norms_stream = mlp.norms_stream = true;
  mixer.stream_multiplier = read(attention, "alpha");
  mixer.multiplier = read(attention, "beta");
  mlp.stream_multiplier = read("mlp", "alpha");
  mlp.multiplier = read("mlp", "beta");
}

DecoderSpec parse_minimax_text(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kMiniMax);
  const auto layers = std::ssize(spec.layers);
  LayerSpec& layer = spec.kinds.front();
  MlpSpec& mlp = layer.mlps.front().mlp;
  name_mlp(mlp, layer.name + ".block_sparse_moe", "w1", "w3", "w2");
  ExpertsSpec experts = read_experts(
      c, {.count = {"num_local_experts", "num_experts"}, .absent_count = 8, .absent_top_k = 2});
  experts.choice.normalized = true;
  name_experts(experts, mlp, mlp.width.size);
  LayerSpec linear = layer;
  AttentionSpec& attention = layer.mixers.front().attention();
  if (c.has("sliding_window")) attention.window = c.integer("sliding_window", 1, kMaxPositions);
  linear.mixers.front().mixer = lightning_attention(attention, mlp.activation, spec.layers.size());
  attention.qkv.name = attention.name + ".in_proj";  // qkv_proj is a tensor of other layers
  norm_stream_before(c, layer, false);
  norm_stream_before(c, linear, true);
  spec.kinds.push_back(std::move(linear));
  spec.layers = read_layer_types(c, layers, {"full_attention", "linear_attention"});
  for (auto l = std::ssize(spec.layers); l < layers; ++l)
    spec.layers.push_back(l % 2 == 0 ? kMiniMaxFull : kMiniMaxLinear);
  use_experts(spec, experts, sparse_from(0, layers));
  return spec;
}

}  // namespace

std::vector<Family> minimax_families() {
  return {{"MiniMaxForCausalLM",
           "minimax",
           parse_minimax_text,
           {"*.slope_rate", "*.query_decay", "*.key_decay", "*.diagonal_decay"}}};
}

}  // namespace sluice
