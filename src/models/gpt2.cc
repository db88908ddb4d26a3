// GPT2LMHeadModel (GPT-2, DistilGPT-2 and what is trained in their layout). Weights are stored as
// [inputs, outputs]; the names may lack "transformer.", as in the first release.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families.h"

namespace sluice {
namespace {

LayerSpec gpt2_layer(int64_t hidden, const Heads& h, int64_t mlp_width, const NormParams& norm) {
  const std::string layer = "transformer.h.{}";
  const std::string qkv = layer + ".attn.c_attn";
  auto part = [&](int64_t i) { return PartSpec{qkv, {.transposed = true, .first = i * hidden}}; };
  AttentionSpec attention{.name = layer + ".attn",
                          .heads = {.size = hidden, .unit = h.head_dim},
                          .kv_heads = {.size = hidden, .unit = h.head_dim},
                          .head_dim = h.head_dim,
                          .rope = std::nullopt,
                          .qkv = {qkv, {part(0), part(1), part(2)}, true},
                          .output = one_linear(layer + ".attn.c_proj", true, true)};
  MlpSpec mlp{.name = layer + ".mlp",
              .width = {.size = mlp_width},
              .up = one_linear(layer + ".mlp.c_fc", true, true),
              .down = one_linear(layer + ".mlp.c_proj", true, true)};
  return {.name = layer,
          .mixers = {{.norm = {layer + ".ln_1", norm, true}, .attention = std::move(attention)}},
          .mlps = {{.norm = {layer + ".ln_2", norm, true}, .mlp = std::move(mlp)}}};
}

DecoderSpec parse_gpt2(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "n_embd", "n_layer", "n_head"});
  if (!read_boolean(c, "scale_attn_weights", true) ||
      read_boolean(c, "scale_attn_by_inverse_layer_idx", false) ||
      read_boolean(c, "add_cross_attention", false)) {
    fail(ErrorKind::refused,
         "{}: scale_attn_weights must be true, scale_attn_by_inverse_layer_idx and "
         "add_cross_attention false; others are not supported",
         c.where());
  }
  DecoderSpec spec;
  spec.prefixes = {"transformer.", ""};
  spec.vocab_size = read_size(c, "vocab_size", 50257, kMaxVocab);
  spec.hidden_size = read_size(c, "n_embd", 768);
  spec.max_positions = read_size(c, "n_positions", 1024, kMaxWidth);
  const Heads heads =
      read_heads(c, spec.hidden_size,
                 {.heads = "n_head", .absent_heads = 12, .kv_heads = nullptr, .head_dim = nullptr});
  const int64_t mlp_width = c.integer_or("n_inner", 1, 4 * kMaxWidth, 4 * spec.hidden_size);
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5), .kind = NormKind::layer};
  spec.kinds = {gpt2_layer(spec.hidden_size, heads, mlp_width, norm)};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, "activation_function", "gelu_new");
  spec.layers.assign(static_cast<size_t>(read_size(c, "n_layer", 12, kMaxLayers)), 0);
  spec.embedding = "transformer.wte";
  spec.positions = "transformer.wpe";
  spec.norm = {"transformer.ln_f", norm, true};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

}  // namespace

std::vector<Family> gpt2_families() { return {{"GPT2LMHeadModel", "gpt2", parse_gpt2, {}}}; }

}  // namespace sluice
