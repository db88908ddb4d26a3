#include "src/models/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/models/config.h"

namespace sluice {
namespace {

LayerSpec common_layer(const Heads& h, int64_t mlp_width, const NormParams& norm, bool norm_bias) {
  const std::string layer = "model.layers.{}", attention = layer + ".self_attn",
                    mlp = layer + ".mlp";
  AttentionSpec a{
      .name = attention,
      .heads = {.size = h.heads * h.head_dim, .unit = h.head_dim},
      .kv_heads = {.size = h.kv_heads * h.head_dim, .unit = h.head_dim},
      .head_dim = h.head_dim,
      .qkv = {.name = attention + ".qkv_proj",
              .parts = {{attention + ".q_proj"}, {attention + ".k_proj"}, {attention + ".v_proj"}}},
      .output = {.name = attention + ".o_proj", .parts = {{attention + ".o_proj"}}}};
  MlpSpec m{
      .name = mlp,
      .width = {.size = mlp_width},
      .up = {.name = mlp + ".gate_up_proj", .parts = {{mlp + ".gate_proj"}, {mlp + ".up_proj"}}},
      .down = {.name = mlp + ".down_proj", .parts = {{mlp + ".down_proj"}}}};
  return {
      .name = layer,
      .mixers = {{.norm = {layer + ".input_layernorm", norm, norm_bias}, .mixer = std::move(a)}},
      .mlps = {
          {.norm = {layer + ".post_attention_layernorm", norm, norm_bias}, .mlp = std::move(m)}}};
}

}  // namespace

DecoderSpec common_layout(const JsonFields& c, const LayoutDefaults& defaults) {
  const bool has_mlp = defaults.intermediate_size > 0;
  warn_of_absent(c, {"vocab_size", "hidden_size", defaults.layers_key, "num_attention_heads"});
  if (has_mlp) warn_of_absent(c, {"intermediate_size"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", defaults.vocab_size, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", defaults.hidden_size);
  spec.max_positions =
      read_size(c, defaults.positions_key, defaults.max_position_embeddings, kMaxPositions);
  const int64_t mlp_width =
      has_mlp ? read_size(c, "intermediate_size", defaults.intermediate_size, 4 * kMaxWidth) : 0;
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.absent_heads = defaults.num_attention_heads,
                                  .absent_kv_heads = defaults.num_key_value_heads,
                                  .head_dim = defaults.fixed_head_dim ? nullptr : "head_dim",
                                  .absent_head_dim = defaults.head_dim});
  const NormParams norm{.eps = read_eps(c, defaults.eps_key, defaults.rms_norm_eps),
                        .kind = defaults.norm};
  spec.kinds = {common_layer(heads, mlp_width, norm, defaults.norm_bias)};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, defaults.activation_key, defaults.hidden_act);
  spec.layers.assign(static_cast<size_t>(
                         read_size(c, defaults.layers_key, defaults.num_hidden_layers, kMaxLayers)),
                     0);
  spec.norm = {"model.norm", norm, defaults.norm_bias};
  const char* theta_key = defaults.rope_of_class && !has_rope_fields(c) ? nullptr : "rope_theta";
  spec.ropes = {parse_rope(c, {.head_dim = heads.head_dim,
                               .max_positions = spec.max_positions,
                               .default_theta = defaults.rope_theta,
                               .theta_key = theta_key,
                               .part_key = defaults.part_key,
                               .default_part = defaults.part,
                               .default_original = defaults.original_positions,
                               .layers = defaults.rope_layers})};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", defaults.tie_word_embeddings);
  return spec;
}

void fuse(LinearSpec& linear, const std::string& name,
          std::initializer_list<int64_t> first_outputs) {
  linear.name = name;
  linear.parts.clear();
  for (int64_t first : first_outputs) linear.parts.push_back({name, {.first = first}});
}

void norm_outputs(LayerSpec& layer) {
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  mixer.output_norm = std::exchange(mixer.norm, {});
  mlp.output_norm = std::exchange(mlp.norm, {});
  mixer.output_norm.name = layer.name + ".post_attention_layernorm";
  mlp.output_norm.name = layer.name + ".post_feedforward_layernorm";
}

void norm_stream(DecoderSpec& spec) {
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().stream_norm = std::exchange(layer.mixers.front().norm, {});
  layer.mlps.front().stream_norm = std::exchange(layer.mlps.front().norm, {});
  LayerSpec last = layer;
  spec.norm = std::exchange(last.mlps.front().stream_norm, {});
  spec.norm.name = name_in_layer(spec.norm.name, std::ssize(spec.layers) - 1);
  spec.layers.back() = 1;
  spec.kinds.push_back(std::move(last));
}

void use_plain_mlp(MlpSpec& mlp, std::string_view up, std::string_view down) {
  mlp.up = one_linear(fmt::format("{}.{}", mlp.name, up), mlp.up.bias);
  mlp.down = one_linear(fmt::format("{}.{}", mlp.name, down), mlp.down.bias);
}

void name_mlp(MlpSpec& mlp, const std::string& name, std::string_view gate, std::string_view up,
              std::string_view down) {
  mlp.name = name;
  mlp.up.name = name + ".gate_up_proj";
  mlp.up.parts = {{fmt::format("{}.{}", name, gate)}, {fmt::format("{}.{}", name, up)}};
  mlp.down = one_linear(fmt::format("{}.{}", name, down), mlp.down.bias);
}

void share_keys(size_t of, AttentionSpec& attention) {
  attention.shared_with = of;
  attention.keys_are_values = false;
  attention.qkv.parts.resize(1);
  attention.k_norm = attention.v_norm = {};
}

void ignore_keys(const LayerSpec& layer, int64_t number, DecoderSpec& spec) {
  for (const char* unused : {".k_proj.*", ".v_proj.*", ".k_norm.*", ".v_norm.*"})
    spec.ignorable.push_back(name_in_layer(layer.mixers.front().attention().name + unused, number));
}

void use_attention(DecoderSpec& spec, std::span<const LayerAttention> layers) {
  check(spec.kinds.size() == 1 && layers.size() == spec.layers.size(),
        "an attention for each layer");
  const LayerSpec layer = std::move(spec.kinds.front());
  std::vector<LayerAttention> known;
  spec.kinds.clear();
  for (size_t i = 0; i < layers.size(); ++i) {
    spec.layers[i] = static_cast<size_t>(std::ranges::find(known, layers[i]) - known.begin());
    if (spec.layers[i] < known.size()) continue;
    known.push_back(layers[i]);
    spec.kinds.push_back(layer);
    AttentionSpec& attention = spec.kinds.back().mixers.front().attention();
    attention.window = layers[i].window;
    attention.angles = layers[i].rope.value_or(0);
    if (!layers[i].rope) attention.rope = std::nullopt;
  }
}

void use_windows(DecoderSpec& spec, std::span<const int64_t> windows, size_t rope_of_windows) {
  std::vector<LayerAttention> layers;
  for (int64_t window : windows) layers.push_back({window, window > 0 ? rope_of_windows : 0});
  use_attention(spec, layers);
}

namespace {

bool is_fused(const LinearSpec& linear) {
  return std::ranges::any_of(
      linear.parts, [](const PartSpec& p) { return p.view.first > 0 || p.view.group > 0; });
}

bool use_kv_heads(int64_t count, LayerSpec& layer) {
  if (layer.mixers.size() != 1 ||
      !std::holds_alternative<AttentionSpec>(layer.mixers.front().mixer))
    return false;
  AttentionSpec& attention = layer.mixers.front().attention();
  if (count < 1 || attention.heads.units() % count != 0 || is_fused(attention.qkv)) return false;
  attention.kv_heads = {.size = count * attention.head_dim, .unit = attention.head_dim};
  return true;
}

bool use_mlp_width(int64_t width, LayerSpec& layer) {
  if (layer.mlps.size() != 1 || layer.mlps.front().experts) return false;
  MlpSpec& mlp = layer.mlps.front().mlp;
  if (width < 1 || is_fused(mlp.up)) return false;
  mlp.width.size = width;
  return true;
}

}  // namespace

bool use_layer_counts(DecoderSpec& spec, const LayerCounts& counts) {
  if (counts.kv_heads.empty() && counts.mlp_widths.empty()) return true;
  const auto is_for_all = [&](const auto& of) {
    return of.empty() || of.size() == spec.layers.size();
  };
  if (!is_for_all(counts.kv_heads) || !is_for_all(counts.mlp_widths)) return false;
  using Kind = std::tuple<size_t, std::optional<int64_t>, std::optional<int64_t>>;
  const std::vector<LayerSpec> before = std::exchange(spec.kinds, {});
  const auto number = [](const std::vector<std::optional<int64_t>>& of, size_t layer) {
    return of.empty() ? std::nullopt : of[layer];
  };
  std::vector<Kind> known;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const auto kv_heads = number(counts.kv_heads, l), width = number(counts.mlp_widths, l);
    const Kind kind(spec.layers[l], kv_heads, width);
    const LayerSpec& common = before[spec.layers[l]];
    spec.layers[l] = static_cast<size_t>(std::ranges::find(known, kind) - known.begin());
    if (spec.layers[l] < known.size()) continue;
    known.push_back(kind);
    LayerSpec& layer = spec.kinds.emplace_back(common);
    if (kv_heads && !use_kv_heads(*kv_heads, layer)) return false;
    if (width && !use_mlp_width(*width, layer)) return false;
  }
  return true;
}

LayerCounts read_layer_counts(const JsonFields& c, size_t layers) {
  LayerCounts counts;
  each_own_config(c, layers, [&](size_t layer, const JsonFields& own, const std::string& key) {
    if (key == "num_key_value_heads") {
      counts.kv_heads.resize(layers);
      counts.kv_heads[layer] = own.integer(key.c_str(), 1, kMaxWidth);
    } else if (key == "intermediate_size") {
      counts.mlp_widths.resize(layers);
      counts.mlp_widths[layer] = own.integer(key.c_str(), 1, 4 * kMaxWidth);
    } else {
      return false;
    }
    return true;
  });
  return counts;
}

}  // namespace sluice
