// Gemma3nForCausalLM (Gemma 3n E2B and E4B, and the language model in
// Gemma3nForConditionalGeneration): four residual streams (AltUp, arXiv:2301.13310), of which each
// layer computes one; a product of low rank beside attention (LAuReL, arXiv:2411.07501); an input
// of each layer from each token; the last layers share keys and values; some MLPs keep the largest
// of their activations alone.
#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kGemma3n{.vocab_size = 262400,
                                  .hidden_size = 2048,
                                  .num_hidden_layers = 35,
                                  .num_attention_heads = 8,
                                  .num_key_value_heads = 2,
                                  .head_dim = 256,
                                  .max_position_embeddings = 32768,
                                  .rms_norm_eps = 1e-6,
                                  .rope_theta = 1000000,
                                  .hidden_act = "gelu_pytorch_tanh",
                                  .tie_word_embeddings = true,
                                  .rope_layers = "full_attention",
                                  .activation_key = "hidden_activation"};

// Layers without a window, and with one, have their angles.
enum : size_t { kWholeRope, kSlidingRope };

// A number for each layer, or one for all.
std::vector<double> of_layers(const JsonFields& c, const char* key, size_t layers, double absent) {
  if (!c.has(key)) return std::vector(layers, absent);
  if (c.raw(key).is_number()) return std::vector(layers, c.number(key));
  const std::vector<double> numbers = *read_numbers(c, key);
  if (numbers.size() != layers)
    fail(ErrorKind::refused, "{}: {} must have a number for each of {} layers", c.where(), key,
         layers);
  return numbers;
}

std::vector<int64_t> mlp_widths(const JsonFields& c, size_t layers) {
  c.refuse_null({"intermediate_size"});
  std::vector<int64_t> widths;
  for (const double width : of_layers(c, "intermediate_size", layers, 16384)) {
    if (width < 1 || width > 4 * static_cast<double>(kMaxWidth) || width != std::floor(width))
      fail(ErrorKind::refused, "{}: intermediate_size has {}, which is no width", c.where(), width);
    widths.push_back(static_cast<int64_t>(width));
  }
  return widths;
}

// Deviations above its mean that an activation is kept from, of a normal distribution of which the
// share `sparsity` is below them.
float cut_of(double sparsity) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle * M_SQRT1_2) / 2 < sparsity ? low : high) = middle;
  }
  return static_cast<float>(low);
}

std::vector<std::optional<float>> read_cuts(const JsonFields& c, size_t layers) {
  constexpr const char* kKey = "activation_sparsity_pattern";
  constexpr size_t kSparse = 10;
  std::vector<double> shares = of_layers(c, kKey, layers, 0);
  if (!c.has(kKey) && layers > kSparse) std::fill_n(shares.begin(), kSparse, 0.95);
  std::vector<std::optional<float>> cuts;
  for (const double share : shares) {
    if (share < 0 || share >= 1)
      fail(ErrorKind::refused, "{}: {} has {}, which is no share", c.where(), kKey, share);
    cuts.push_back(share > 0 ? std::optional(cut_of(share)) : std::nullopt);
  }
  return cuts;
}

// The spec that all layers share.
LayerSpec layer_of_3n(const JsonFields& c, const DecoderSpec& spec) {
  LayerSpec layer = spec.kinds.front();
  auto named = [&](const std::string& name) { return NormSpec{name, spec.norm.params}; };
  MixerBranch& mixer = layer.mixers.front();
  AttentionSpec& attention = mixer.attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.scale = 1;
  attention.q_norm = named(attention.name + ".q_norm");
  attention.k_norm = named(attention.name + ".k_norm");
  attention.v_norm = named(attention.name + ".v_norm");
  attention.v_norm.weight = false;
  mixer.output_norm = named(layer.name + ".post_attention_layernorm");
  const std::string laurel = layer.name + ".laurel";
  const int64_t rank = read_size(c, "laurel_rank", 64);
  const MlpBranch low_rank{.input = BranchInput::layer_input,
                           .norm = {},
                           .mlp = {.name = laurel,
                                   .width = {.size = rank},
                                   .activation = Activation::identity,
                                   .up = one_linear(laurel + ".linear_left", false),
                                   .down = one_linear(laurel + ".linear_right", false)},
                           .adds_input = true,
                           .output_norm = named(laurel + ".post_laurel_norm"),
                           .sum_multiplier = std::sqrt(0.5F)};
  MlpBranch& mlp = layer.mlps.front();
  mlp.norm = named(layer.name + ".pre_feedforward_layernorm");
  mlp.output_norm = named(layer.name + ".post_feedforward_layernorm");
  layer.mlps.insert(layer.mlps.begin(), low_rank);
  return layer;
}

void add_altup(const JsonFields& c, DecoderSpec& spec) {
  const int64_t count = read_size(c, "altup_num_inputs", 4, kMostParts);
  const std::string altup = "model.layers.{}.altup";
  const int64_t computed = c.integer_or("altup_active_idx", 0, count - 1, 0);
  AltUpSpec streams{.count = count,
                    .computed = computed,
                    .entries = {},
                    .exits = {},
                    .router_norm = {altup + ".router_norm", spec.norm.params},
                    .router = altup + ".modality_router",
                    .predictions = altup + ".prediction_coefs",
                    .corrections = altup + ".correction_coefs",
                    .scale = altup + ".correct_output_scale"};
  if (!read_boolean(c, "altup_correct_scale", true)) {
    streams.scale.clear();
    spec.ignorable.push_back("*.altup.correct_output_scale");
  }
  for (int64_t i = 0; i + 1 < count; ++i) {
    streams.entries.push_back(name_at("model.altup_projections.{}", {i}));
    streams.exits.push_back(name_at("model.altup_unembed_projections.{}", {i}));
  }
  spec.altup = std::move(streams);
}

void add_layer_inputs(const JsonFields& c, DecoderSpec& spec, LayerSpec& layer) {
  const int64_t width = read_size(c, "hidden_size_per_layer_input", 256);
  constexpr int64_t kMostWithoutRows = 4096;  // tokens; each is a piece of its own
  const int64_t rows = read_size(c, "vocab_size_per_layer_input", 262144, kMaxVocab);
  if (spec.vocab_size - rows > kMostWithoutRows)
    fail(ErrorKind::refused,
         "{}: vocab_size_per_layer_input is {}, but must be at most {} below vocab_size, {}",
         c.where(), rows, kMostWithoutRows, spec.vocab_size);
  spec.layer_inputs = {.table = "model.embed_tokens_per_layer",
                       .projection = "model.per_layer_model_projection",
                       .norm = {"model.per_layer_projection_norm", spec.norm.params},
                       .width = width,
                       .rows = rows,
                       .table_multiplier = std::sqrt(static_cast<float>(width)),
                       .projection_multiplier = 1 / std::sqrt(static_cast<float>(spec.hidden_size)),
                       .multiplier = std::sqrt(0.5F)};
  layer.mlps.push_back(
      {.input = BranchInput::computed,
       .norm = {},
       .mlp = {.name = layer.name + ".per_layer_input",
               .width = {.size = width},
               .activation = layer.mlps.back().mlp.activation,
               .up = one_linear(layer.name + ".per_layer_input_gate", false),
               .times_layer_input = true,
               .down = one_linear(layer.name + ".per_layer_projection", false)},
       .output_norm = {layer.name + ".post_per_layer_input_norm", spec.norm.params}});
}

// In what layers differ.
struct KindOf3n {
  int64_t window = 0;
  std::optional<size_t> keys_of = {};  // the layer whose keys and values it attends to
  int64_t width = 0;
  std::optional<float> cut = {};
  bool operator==(const KindOf3n&) const = default;
};

std::vector<KindOf3n> read_kinds(const JsonFields& c, size_t layers) {
  constexpr int64_t kWindow = 512, kFullEach = 5;
  const auto count = static_cast<int64_t>(layers);
  const std::vector<int64_t> windows = read_windows(c, kWindow, count, kFullEach),
                             widths = mlp_widths(c, layers);
  const std::vector<std::optional<float>> cuts = read_cuts(c, layers);
  c.refuse_null({"num_kv_shared_layers"});
  const int64_t own =
      count - c.integer_or("num_kv_shared_layers", 0, count - 1, std::min<int64_t>(15, count - 1));
  std::vector<KindOf3n> kinds;
  std::optional<size_t> last[2];
  for (size_t l = 0; l < layers; ++l) {
    std::optional<size_t>& of_kind = last[windows[l] > 0 ? 1 : 0];
    kinds.push_back({.window = windows[l], .width = widths[l], .cut = cuts[l]});
    if (static_cast<int64_t>(l) < own) {
      of_kind = l;
      continue;
    }
    if (!of_kind)
      fail(ErrorKind::refused, "{}: layer {} shares keys, and there is none of its kind before it",
           c.where(), l);
    kinds.back().keys_of = of_kind;
  }
  return kinds;
}

void make_kinds(const JsonFields& c, const LayerSpec& common, DecoderSpec& spec) {
  const std::vector<KindOf3n> all = read_kinds(c, spec.layers.size());
  std::vector<KindOf3n> known;
  spec.kinds.clear();
  for (size_t l = 0; l < all.size(); ++l) {
    const KindOf3n& kind = all[l];
    if (kind.keys_of) ignore_keys(common, static_cast<int64_t>(l), spec);
    spec.layers[l] = static_cast<size_t>(std::ranges::find(known, kind) - known.begin());
    if (spec.layers[l] < known.size()) continue;
    known.push_back(kind);
    LayerSpec& layer = spec.kinds.emplace_back(common);
    AttentionSpec& attention = layer.mixers.front().attention();
    attention.window = kind.window;
    attention.angles = kind.window > 0 ? kSlidingRope : kWholeRope;
    if (kind.keys_of) share_keys(*kind.keys_of, attention);
    MlpSpec& mlp = layer.mlps[1].mlp;
    mlp.width.size = kind.width;
    mlp.cut = kind.cut;
  }
}

DecoderSpec parse_gemma3n(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kGemma3n);
  LayerSpec layer = layer_of_3n(c, spec);
  add_altup(c, spec);
  add_layer_inputs(c, spec, layer);
  const int64_t head_dim = layer.mixers.front().attention().head_dim;
  make_kinds(c, layer, spec);
  spec.ropes.push_back(parse_rope(c, {.head_dim = head_dim,
                                      .max_positions = spec.max_positions,
                                      .theta_key = "rope_local_base_freq",
                                      .layers = "sliding_attention"}));
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.logit_soft_cap = read_cap(c, "final_logit_softcapping", 30);
  return spec;
}

}  // namespace

std::vector<Family> gemma3n_families() {
  return {{"Gemma3nForCausalLM", "gemma3n_text", parse_gemma3n, {}}};
}

}  // namespace sluice
