// BloomForCausalLM (BLOOM, BLOOMZ): ALiBi instead of positions, a norm of the embedding, q, k and v
// of a head next to each other in one tensor.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

LayerSpec bloom_layer(const Heads& h, int64_t mlp_width, const NormParams& norm) {
  const std::string layer = "transformer.h.{}", attention = layer + ".self_attention";
  const std::string qkv = attention + ".query_key_value";
  const int64_t d = h.head_dim;
  auto part = [&](int64_t i) {
    return PartSpec{qkv, {.first = i * d, .group = d, .stride = 3 * d}};
  };
  AttentionSpec a{.name = attention,
                  .heads = {.size = h.heads * d, .unit = d},
                  .kv_heads = {.size = h.heads * d, .unit = d},
                  .head_dim = d,
                  .alibi = 1,
                  .rope = std::nullopt,
                  .qkv = {qkv, {part(0), part(1), part(2)}, true},
                  .output = one_linear(attention + ".dense", true)};
  MlpSpec m{.name = layer + ".mlp",
            .width = {.size = mlp_width},
            .activation = Activation::gelu_tanh,
            .up = one_linear(layer + ".mlp.dense_h_to_4h", true),
            .down = one_linear(layer + ".mlp.dense_4h_to_h", true)};
  return {
      .name = layer,
      .mixers = {{.norm = {layer + ".input_layernorm", norm, true}, .mixer = std::move(a)}},
      .mlps = {{.norm = {layer + ".post_attention_layernorm", norm, true}, .mlp = std::move(m)}}};
}

DecoderSpec parse_bloom(const JsonFields& c) {
  if (read_boolean(c, "apply_residual_connection_post_layernorm", false)) {
    fail(ErrorKind::refused,
         "{}: apply_residual_connection_post_layernorm is true, which is not supported", c.where());
  }
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 250880, kMaxVocab);
  spec.hidden_size = read_size(c, c.has("n_embed") ? "n_embed" : "hidden_size", 64);
  spec.max_positions = read_size(c, "seq_length", 2048, kMaxPositions);  // ALiBi has no bound
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.heads = present(c, "n_head", "num_attention_heads"),
                                  .absent_heads = 8,
                                  .kv_heads = nullptr,
                                  .head_dim = nullptr});
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5), .kind = NormKind::layer};
  spec.kinds = {bloom_layer(heads, 4 * spec.hidden_size, norm)};
  const int64_t layers = read_size(c, present(c, "n_layer", "num_hidden_layers"), 2, kMaxLayers);
  spec.layers.assign(static_cast<size_t>(layers), 0);
  spec.embedding = "transformer.word_embeddings";
  spec.embedding_norm = {"transformer.word_embeddings_layernorm", norm, true};
  spec.norm = {"transformer.ln_f", norm, true};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

}  // namespace

std::vector<Family> bloom_families() { return {{"BloomForCausalLM", "bloom", parse_bloom, {}}}; }

}  // namespace sluice
