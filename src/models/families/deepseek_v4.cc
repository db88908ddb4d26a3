// DeepseekV4ForCausalLM (DeepSeek-V4): several residual streams, attention of one KV head to a
// window and to summaries of windows before it, of which an indexer may choose, and experts in
// every layer, in the first ones by a table of the tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr double kRopePart = 64.0 / 512;

// Kinds of layers by what they attend to beside the window.
enum : size_t { kWindow, kSparse, kHeavy };
// The model's ropes: for the window alone, with summaries, both reversed, and by the first
// positions of windows of either kind.
enum : size_t { kMain, kCompress, kMainReversed, kCompressReversed, kSparseKeys, kHeavyKeys };

struct Compression {
  int64_t sparse = 4;
  int64_t heavy = 128;
};

int64_t read_rate(const JsonFields& c, const char* key, int64_t absent) {
  const int64_t rate = read_size(c, key, absent, 1024);
  if ((rate & (rate - 1)) != 0)
    fail(ErrorKind::refused, "{}: {} is {}, but must be a power of two", c.where(), key, rate);
  return rate;
}

Compression read_compression(const JsonFields& c) {
  Compression rates;
  if (c.has("compress_rates")) {
    const JsonFields given(c.raw("compress_rates"), c.where() + ": compress_rates");
    rates.sparse = read_rate(given, "compressed_sparse_attention", rates.sparse);
    rates.heavy = read_rate(given, "heavily_compressed_attention", rates.heavy);
  }
  rates.sparse = read_rate(c, "compress_rate_csa", rates.sparse);
  rates.heavy = read_rate(c, "compress_rate_hca", rates.heavy);
  return rates;
}

// By layer_types, or by compress_ratios (0, 4 and 128), or two heavily compressed layers, then both
// in turn. Lists may go on for layers that are not computed.
std::vector<size_t> read_kinds(const JsonFields& c, size_t layers) {
  std::vector<size_t> kinds;
  if (c.has("layer_types"))
    return read_layer_types(
        c, static_cast<int64_t>(layers),
        {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"});
  const auto ratios = read_numbers(c, "compress_ratios");
  for (size_t l = 0; l < layers; ++l) {
    if (!ratios) {
      kinds.push_back(l >= 2 && l % 2 == 1 ? kSparse : kHeavy);
      continue;
    }
    constexpr std::array<double, 3> kRatios{0, 4, 128};
    const auto known = std::ranges::find(kRatios, l < ratios->size() ? (*ratios)[l] : -1);
    if (known == kRatios.end())
      fail(ErrorKind::refused, "{}: compress_ratios must have 0, 4 or 128 for each layer",
           c.where());
    kinds.push_back(static_cast<size_t>(known - kRatios.begin()));
  }
  return kinds;
}

// The layers whose experts are chosen by a table.
std::vector<bool> read_hashed(const JsonFields& c, size_t layers) {
  std::vector<bool> hashed;
  const auto kinds =
      read_layer_types(c, static_cast<int64_t>(layers), {"moe", "hash_moe"}, "mlp_layer_types");
  const int64_t first = c.integer_or("num_hash_layers", 0, kMaxLayers, 3);
  for (size_t l = 0; l < layers; ++l)
    hashed.push_back(kinds.empty() ? static_cast<int64_t>(l) < first : kinds[l] == 1);
  return hashed;
}

// One rope field for all kinds of layers is that of those with summaries, whose YaRN does not
// multiply angles; the others have the default rope.
std::vector<RopeConfig> read_ropes(const JsonFields& c, int64_t head_dim, int64_t positions,
                                   const Compression& rates) {
  RopeModel model{.head_dim = head_dim,
                  .max_positions = positions,
                  .default_theta = 10000,
                  .theta_key = nullptr,
                  .part_key = "partial_rotary_factor",
                  .default_part = kRopePart};
  if (c.has("qk_rope_head_dim"))
    model.default_part =
        static_cast<double>(read_size(c, "qk_rope_head_dim", 64)) / static_cast<double>(head_dim);
  const bool divided = c.has("rope_parameters") && c.raw("rope_parameters").contains("main") &&
                       c.raw("rope_parameters").contains("compress");
  RopeModel of_main = model, of_compress = model;
  of_main.layers = "main";  // which fields that are not divided lack
  if (!divided) of_main.theta_key = "rope_theta";
  if (divided) of_compress.layers = "compress";
  RopeConfig compress = parse_rope(c, of_compress);
  if (!divided) {
    compress.theta = read_factor(c, "compress_rope_theta", 160000);
    compress.attention_factor = rope_number(c, "attention_factor", 1);
    check_angles(compress, c.where());
  }
  std::vector<RopeConfig> ropes{parse_rope(c, of_main), compress};
  for (size_t i : {kMain, kCompress}) ropes.emplace_back(ropes[i]).reversed = true;
  for (int64_t window : {rates.sparse, rates.heavy}) ropes.emplace_back(compress).window = window;
  return ropes;
}

SummarySpec summaries(const std::string& name, const NormParams& norm, int64_t dim,
                      int64_t tokens) {
  return {.tokens = tokens,
          .dim = dim,
          .input = {.name = name + ".wkv_gate", .parts = {{name + ".wkv"}, {name + ".wgate"}}},
          .bias = name + ".ape",
          .norm = {name + ".norm", norm}};
}

SummaryAttentionSpec common_attention(const JsonFields& c, const NormParams& norm,
                                      int64_t head_dim) {
  const std::string name = "model.layers.{}.attn";
  const int64_t heads = read_size(c, "num_attention_heads", 64);
  const int64_t window = read_size(c, "sliding_window", 128, kMaxPositions);
  const int64_t query_rank = read_size(c, "q_lora_rank", 1024);
  const int64_t groups = read_size(c, "o_groups", 8);
  const int64_t group_rank = read_size(c, "o_lora_rank", 1024);
  SummaryAttentionSpec a{
      .name = name,
      .heads = {.size = heads * head_dim, .unit = head_dim},
      .head_dim = head_dim,
      .window = window,
      .query_rank = query_rank,
      .query_down = one_linear(name + ".wq_a", false),
      .query_norm = {name + ".q_norm", norm},
      .query = one_linear(name + ".wq_b", false),
      .head_norm = {.name = name + ".head_norm", .params = norm, .weight = false},
      .key = one_linear(name + ".wkv", false),
      .key_norm = {name + ".kv_norm", norm},
      .sinks = name + ".attn_sink",
      .groups = groups,
      .group_rank = group_rank,
      .group_output = name + ".wo_a",
      .output = one_linear(name + ".wo_b", false)};
  if (heads * head_dim > 64 * kMaxWidth || heads % a.groups != 0 || head_dim % 2 != 0 ||
      a.groups * a.group_rank > 64 * kMaxWidth)
    fail(ErrorKind::refused,
         "{}: {} heads of {} elements in {} groups (o_groups) of rank {}, which is odd or absurd",
         c.where(), heads, head_dim, a.groups, a.group_rank);
  return a;
}

SummaryIndexerSpec indexer(const JsonFields& c, const NormParams& norm, int64_t rope_dim) {
  const std::string name = "model.layers.{}.attn.indexer";
  const int64_t dim = read_size(c, "index_head_dim", 128);
  SummaryIndexerSpec spec{.heads = read_size(c, "index_n_heads", 64),
                          .chosen = read_size(c, "index_topk", 512, kMostChosen),
                          .keys = summaries(name + ".compressor", norm, dim, 0),
                          .query = one_linear(name + ".wq_b", false),
                          .weights = one_linear(name + ".weights_proj", false)};
  check_indexer(c, spec.heads, dim, rope_dim);
  return spec;
}

SummaryAttentionSpec attention_of(const JsonFields& c, const SummaryAttentionSpec& common,
                                  size_t kind, const Compression& rates, int64_t rope_dim) {
  SummaryAttentionSpec a = common;
  a.angles = kind == kWindow ? kMain : kCompress;
  a.reversed_angles = kind == kWindow ? kMainReversed : kCompressReversed;
  if (kind == kWindow) return a;
  const NormParams& norm = common.key_norm.params;
  const int64_t tokens = kind == kSparse ? rates.sparse : rates.heavy;
  a.summaries = summaries(a.name + ".compressor", norm, a.head_dim, tokens);
  a.summaries->overlaps = kind == kSparse;
  a.summaries->angles = kind == kSparse ? kSparseKeys : kHeavyKeys;
  if (kind == kHeavy) return a;
  a.indexer = indexer(c, norm, rope_dim);
  a.indexer->keys.tokens = tokens;
  a.indexer->keys.overlaps = true;
  a.indexer->keys.angles = kSparseKeys;
  return a;
}

ExpertsSpec v4_experts(const JsonFields& c) {
  const std::string name = "model.layers.{}.ffn";
  ExpertsSpec experts = read_experts(
      c,
      {.count = {"n_routed_experts", "num_local_experts"}, .absent_count = 256, .absent_top_k = 6});
  MlpSpec mlp;
  mlp.activation = Activation::clamped_silu;
  mlp.limit = read_factor(c, "swiglu_limit", 10);
  name_mlp(mlp, name, "w1", "w3", "w2");
  if (read_activation(c, "hidden_act", "silu") != Activation::silu)
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  const int64_t width = read_size(c, "moe_intermediate_size", 2048, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  const std::string scores = c.string_or("scoring_func", "sqrtsoftplus");
  if (scores != "sqrtsoftplus" && scores != "sigmoid")
    fail(ErrorKind::refused, "{}: scoring_func is {}, but must be sqrtsoftplus or sigmoid",
         c.where(), io::printable(scores));
  RouterParams& choice = experts.choice;
  choice.score = scores == "sigmoid" ? RouterScore::sigmoid : RouterScore::sqrt_softplus;
  choice.normalized = true;
  choice.added = 1e-20F;
  choice.factor = read_factor(c, "routed_scaling_factor", 1.5);
  experts.shared = mlp_like(mlp, name + ".shared_experts", width);
  return experts;
}

StreamMixSpec stream_mix(const std::string& name) {
  return {
      .name = name, .logits = name + "_fn", .scales = name + "_scale", .biases = name + "_base"};
}

DecoderSpec sizes(const JsonFields& c, const NormParams& norm) {
  warn_of_absent(c, {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 129280, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 4096);
  spec.max_positions = read_size(c, "max_position_embeddings", 1048576, kMaxPositions);
  spec.layers.resize(static_cast<size_t>(read_size(c, "num_hidden_layers", 43, kMaxLayers)));
  spec.embedding = "model.embed";
  spec.head = "head";
  spec.norm = {"model.norm", norm};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", false);
  spec.streams = {.count = read_size(c, "hc_mult", 4, kMostStreams),
                  .iterations = read_size(c, "hc_sinkhorn_iters", 20, 1000),
                  .eps = read_eps(c, "hc_eps", 1e-6),
                  .norm_eps = norm.eps,
                  .last = stream_mix("model.hc_head")};
  return spec;
}

// Names that transformers saves in the place of published ones.
void use_saved_names(DecoderSpec& spec) {
  spec.other_names = {{"model.embed", "model.embed_tokens"},
                      {"model.layers.{}.attn.kv_norm", "model.layers.{}.attn.norm"}};
  for (const std::string part : {"fn", "scale", "base"})
    spec.other_names.push_back({"model.hc_head_" + part, "model.hc_head.hc_" + part});
}

DecoderSpec parse_deepseek_v4(const JsonFields& c) {
  const NormParams norm{.eps = read_eps(c, "rms_norm_eps", 1e-6)};
  DecoderSpec spec = sizes(c, norm);
  const Compression rates = read_compression(c);
  const int64_t head_dim = read_size(c, "head_dim", 512);
  spec.ropes = read_ropes(c, head_dim, spec.max_positions, rates);
  const SummaryAttentionSpec common = common_attention(c, norm, head_dim);
  const std::string layer = "model.layers.{}";
  ExpertsSpec hashed = v4_experts(c), scored = hashed;
  hashed.choice_table = layer + ".ffn.gate.tid2eid";
  scored.choice_bias = layer + ".ffn.gate.bias";
  for (size_t kind : {kWindow, kSparse, kHeavy}) {
    const SummaryAttentionSpec attention =
        attention_of(c, common, kind, rates, spec.ropes.front().dim);
    for (const ExpertsSpec& experts : {scored, hashed}) {
      spec.kinds.push_back({.name = layer,
                            .mixers = {{.mix = stream_mix(layer + ".hc_attn"),
                                        .norm = {layer + ".attn_norm", norm},
                                        .mixer = attention}},
                            .mlps = {{.mix = stream_mix(layer + ".hc_ffn"),
                                      .norm = {layer + ".ffn_norm", norm},
                                      .experts = experts}}});
    }
  }
  use_saved_names(spec);
  const std::vector<size_t> kinds = read_kinds(c, spec.layers.size());
  const std::vector<bool> by_table = read_hashed(c, spec.layers.size());
  for (size_t l = 0; l < spec.layers.size(); ++l)
    spec.layers[l] = 2 * kinds[l] + (by_table[l] ? 1 : 0);
  return spec;
}

}  // namespace

std::vector<Family> deepseek_v4_families() {
  return {{"DeepseekV4ForCausalLM", "deepseek_v4", parse_deepseek_v4, {"mtp.*", "model.mtp.*"}}};
}

}  // namespace sluice
