// FalconForCausalLM (Falcon 7B, 40B, 180B, RW): q, k and v in one tensor, of which there are three
// orders; attention and MLP mostly side by side, on one norm or each on its own.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

struct FalconLayout {
  bool grouped = false;  // the new decoder architecture: each KV head behind its queries
  bool one_kv_head = false;
  bool parallel = false;
  bool own_norms = false;  // of attention and MLP side by side
};

FalconLayout read_layout(const JsonFields& c) {
  FalconLayout layout{.grouped = read_flag(c, "new_decoder_architecture", false),
                      .parallel = read_flag(c, "parallel_attn", true)};
  layout.one_kv_head = !layout.grouped && read_flag(c, "multi_query", true);
  if (layout.grouped && !layout.parallel)
    fail(ErrorKind::refused, "{}: new_decoder_architecture without parallel_attn", c.where());
  const int64_t norms = c.integer_or("num_ln_in_parallel_attn", 1, 2, layout.grouped ? 2 : 1);
  layout.own_norms = layout.grouped && norms == 2;
  return layout;
}

// Heads follow each other: of each group some queries, a key and a value.
LinearSpec falcon_qkv(const std::string& name, const FalconLayout& layout, const Heads& h,
                      bool bias) {
  const int64_t d = h.head_dim;
  if (layout.one_kv_head)
    return {
        name, {{name}, {name, {.first = h.heads * d}}, {name, {.first = h.heads * d + d}}}, bias};
  const int64_t queries = h.heads / h.kv_heads * d, stride = queries + 2 * d;
  return {name,
          {{name, {.group = queries, .stride = stride}},
           {name, {.first = queries, .group = d, .stride = stride}},
           {name, {.first = queries + d, .group = d, .stride = stride}}},
          bias};
}

LayerSpec falcon_layer(const FalconLayout& layout, const Heads& h, int64_t mlp_width, float eps,
                       bool bias) {
  const std::string layer = "transformer.h.{}", mlp = layer + ".mlp",
                    attention = layer + ".self_attention";
  const NormParams norm{.eps = eps, .kind = NormKind::layer};
  // Ranks have whole groups.
  const int64_t group = layout.grouped ? h.heads / h.kv_heads * h.head_dim : 1;
  AttentionSpec a{.name = attention,
                  .heads = {.size = h.heads * h.head_dim, .unit = h.head_dim, .multiple_of = group},
                  .kv_heads = {.size = h.kv_heads * h.head_dim, .unit = h.head_dim},
                  .head_dim = h.head_dim,
                  .qkv = falcon_qkv(attention + ".query_key_value", layout, h, bias),
                  .output = one_linear(attention + ".dense", bias)};
  MlpSpec m{.name = mlp,
            .width = {.size = mlp_width},
            .up = one_linear(mlp + ".dense_h_to_4h", bias),
            .down = one_linear(mlp + ".dense_4h_to_h", bias)};
  LayerSpec spec{
      .name = layer,
      .mixers = {{.norm = {layer + ".input_layernorm", norm, true}, .mixer = std::move(a)}},
      .mlps = {{.norm = {layer + ".post_attention_layernorm", norm, true}, .mlp = std::move(m)}}};
  if (!layout.parallel) return spec;
  spec.mlps.front().input = BranchInput::layer_input;
  spec.mlps.front().norm = layout.own_norms ? NormSpec{layer + ".ln_mlp", norm, true} : NormSpec{};
  if (layout.own_norms) spec.mixers.front().norm.name = layer + ".ln_attn";
  return spec;
}

DecoderSpec parse_falcon(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 65024, kMaxVocab);
  spec.hidden_size = read_size(c, c.has("n_embed") ? "n_embed" : "hidden_size", 4544);
  spec.max_positions = read_size(c, "max_position_embeddings", 2048, kMaxPositions);
  const FalconLayout layout = read_layout(c);
  Heads heads = read_heads(c, spec.hidden_size,
                           {.absent_heads = 71,
                            .kv_heads = layout.grouped ? "num_kv_heads" : nullptr,
                            .head_dim = nullptr});
  if (layout.one_kv_head) heads.kv_heads = 1;
  const int64_t mlp_width = c.integer_or("ffn_hidden_size", 1, 4 * kMaxWidth, 4 * spec.hidden_size);
  const float eps = read_eps(c, "layer_norm_epsilon", 1e-5);
  spec.kinds = {falcon_layer(layout, heads, mlp_width, eps, read_flag(c, "bias", false))};
  spec.kinds.front().mlps.front().mlp.activation = read_activation(c, "activation", "gelu");
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_hidden_layers", 32, kMaxLayers)), 0);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  if (read_flag(c, "alibi", false)) {
    // It is added before scores are divided.
    attention.alibi = 1 / std::sqrt(static_cast<float>(heads.head_dim));
    attention.rope = std::nullopt;
  } else {
    spec.ropes = {parse_rope(c, {.head_dim = heads.head_dim, .max_positions = spec.max_positions})};
  }
  spec.embedding = "transformer.word_embeddings";
  spec.norm = {"transformer.ln_f", {.eps = eps, .kind = NormKind::layer}, true};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

}  // namespace

std::vector<Family> falcon_families() {
  return {{"FalconForCausalLM", "falcon", parse_falcon, {}}};
}

}  // namespace sluice
