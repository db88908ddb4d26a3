// DeciLMForCausalLM (Nemotron Super and Ultra, DeciLM 7B): Llama's layout, whose layers differ in
// their numbers of KV heads and the widths of their MLPs, or have none of the one or the other
// (block_configs).
#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Defaults of the classes that checkpoints bring along: of Nemotron's, and of DeciLM's, which are
// Llama's.
constexpr LayoutDefaults kDeci{.vocab_size = 128256,
                               .hidden_size = 8192,
                               .num_hidden_layers = 80,
                               .num_attention_heads = 64,
                               .max_position_embeddings = 131072,
                               .rms_norm_eps = 1e-5,
                               .rope_theta = 500000};

constexpr LayoutDefaults kDeciLm{.vocab_size = 32000,
                                 .hidden_size = 4096,
                                 .intermediate_size = 11008,
                                 .num_hidden_layers = 32,
                                 .num_attention_heads = 32,
                                 .max_position_embeddings = 2048,
                                 .rms_norm_eps = 1e-6,
                                 .rope_theta = 10000};

// A layer's sizes. 0: it has no attention, or no MLP.
struct DeciLayer {
  int64_t kv_heads = 0;
  int64_t mlp_width = 0;
  bool operator==(const DeciLayer&) const = default;
};

bool is_off(const JsonFields& part) {
  if (read_boolean(part, "replace_with_linear", false))
    fail(ErrorKind::refused, "{}: replace_with_linear is true, which is not supported",
         part.where());
  return read_boolean(part, "no_op", false);
}

// Other settings of a layer change what it computes.
void refuse_others(const JsonFields& part, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : part.object().items())
    if (std::ranges::find(known, key) == known.end() && !value.is_null() && value != false)
      fail(ErrorKind::refused, "{}: {} is set, which is not supported", part.where(),
           io::printable(key));
}

// KV heads of the layer: those of a group of heads each.
int64_t read_kv_heads(const JsonFields& attention, int64_t heads) {
  constexpr const char* kGroup = "n_heads_in_group";
  if (is_off(attention)) return 0;
  refuse_others(attention, {kGroup});
  const int64_t group = attention.integer(kGroup, 1, heads);
  if (heads % group != 0)
    fail(ErrorKind::refused, "{}: {} is {}, which does not divide the {} heads", attention.where(),
         kGroup, group, heads);
  return heads / group;
}

// Two thirds of a multiple of the residual stream's width, to the next multiple of 256.
int64_t read_mlp_width(const JsonFields& ffn, int64_t hidden_size) {
  constexpr int64_t kMultiple = 256;
  constexpr double kMost = 64;
  if (is_off(ffn)) return 0;
  refuse_others(ffn, {"intermediate_size", "ffn_mult", "gated", "hidden_act"});
  if (!read_boolean(ffn, "gated", true))
    fail(ErrorKind::refused, "{}: gated is false, which is not supported", ffn.where());
  if (ffn.has("hidden_act") && !ffn.is_null("hidden_act") && ffn.raw("hidden_act") != "silu")
    fail(ErrorKind::refused, "{}: hidden_act is not silu, which is not supported", ffn.where());
  if (ffn.has("intermediate_size") && !ffn.is_null("intermediate_size"))
    return ffn.integer("intermediate_size", 1, 4 * kMaxWidth);
  const double factor = ffn.number("ffn_mult");
  if (!(factor > 0) || factor > kMost)
    fail(ErrorKind::refused, "{}: ffn_mult is {}, but must be above 0 and at most {}", ffn.where(),
         factor, kMost);
  const auto width = static_cast<int64_t>(2 * factor * static_cast<double>(hidden_size) / 3);
  return (width + kMultiple - 1) / kMultiple * kMultiple;
}

// Sizes of layers of DeciLM 7B, which all have both.
std::vector<DeciLayer> read_older(const JsonFields& c, const DecoderSpec& spec) {
  constexpr const char* kKey = "num_key_value_heads_per_layer";
  const AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  const int64_t width = read_size(c, "intermediate_size", kDeciLm.intermediate_size, 4 * kMaxWidth);
  std::vector<DeciLayer> layers(spec.layers.size(), {attention.kv_heads.units(), width});
  const auto numbers = read_numbers(c, kKey);
  if (!numbers) return layers;
  const auto heads = static_cast<double>(attention.heads.units());
  const bool good = std::ranges::all_of(
      *numbers, [&](double n) { return n >= 1 && n <= heads && n == static_cast<int64_t>(n); });
  if (!good || numbers->size() != layers.size())
    fail(ErrorKind::refused, "{}: {} must be {} numbers from 1 to {}", c.where(), kKey,
         layers.size(), heads);
  for (size_t l = 0; l < layers.size(); ++l)
    layers[l].kv_heads = static_cast<int64_t>((*numbers)[l]);
  return layers;
}

std::vector<DeciLayer> read_layers(const JsonFields& c, const DecoderSpec& spec) {
  constexpr const char* kBlocks = "block_configs";
  if (!c.has(kBlocks)) return read_older(c, spec);
  const Json& blocks = c.raw(kBlocks);
  if (!blocks.is_array() || blocks.size() != spec.layers.size())
    fail(ErrorKind::refused, "{}: {} must be a list of {} objects", c.where(), kBlocks,
         spec.layers.size());
  const int64_t heads = spec.kinds.front().mixers.front().attention().heads.units();
  std::vector<DeciLayer> layers;
  for (size_t l = 0; l < blocks.size(); ++l) {
    const std::string where = fmt::format("{}: {}[{}]", c.where(), kBlocks, l);
    const JsonFields block(blocks[l], where);
    const JsonFields attention(block.raw("attention"), where + ": attention"),
        ffn(block.raw("ffn"), where + ": ffn");
    const int64_t kv_heads = read_kv_heads(attention, heads);
    const int64_t width = read_mlp_width(ffn, spec.hidden_size);
    layers.push_back({kv_heads, width});
  }
  return layers;
}

LayerSpec layer_of(const LayerSpec& common, const DeciLayer& sizes, const std::string& where) {
  LayerSpec layer = common;
  AttentionSpec& attention = layer.mixers.front().attention();
  if (sizes.kv_heads == 0) {
    layer.mixers.clear();
  } else if (attention.heads.units() % sizes.kv_heads != 0) {
    fail(ErrorKind::refused, "{}: a layer has {} KV heads, which do not divide the {} heads", where,
         sizes.kv_heads, attention.heads.units());
  } else {
    attention.kv_heads.size = sizes.kv_heads * attention.head_dim;
  }
  if (sizes.mlp_width == 0) layer.mlps.clear();
  for (MlpBranch& branch : layer.mlps) branch.mlp.width.size = sizes.mlp_width;
  return layer;
}

DecoderSpec parse_deci(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, c.string_or("model_type", "") == "deci" ? kDeciLm : kDeci);
  const std::vector<DeciLayer> layers = read_layers(c, spec);
  const LayerSpec common = std::exchange(spec.kinds, {}).front();
  std::vector<DeciLayer> known;
  for (size_t l = 0; l < layers.size(); ++l) {
    spec.layers[l] = static_cast<size_t>(std::ranges::find(known, layers[l]) - known.begin());
    if (spec.layers[l] < known.size()) continue;
    known.push_back(layers[l]);
    spec.kinds.push_back(layer_of(common, layers[l], c.where()));
  }
  return spec;
}

}  // namespace

std::vector<Family> deci_families() {
  return {{"DeciLMForCausalLM", "nemotron-nas", parse_deci, {}, {"deci"}}};
}

}  // namespace sluice
