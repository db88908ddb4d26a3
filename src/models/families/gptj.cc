// GPTJForCausalLM (GPT-J): attention and MLP side by side on one norm, rope on the neighbours in a
// part of each head; the head has a bias. CodeGenForCausalLM (CodeGen): the same, with q, v and k
// in one tensor, a quarter of the heads after the other.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

LayerSpec gptj_layer(const Heads& h, int64_t mlp_width, const NormParams& norm) {
  const std::string layer = "transformer.h.{}", attention = layer + ".attn", mlp = layer + ".mlp";
  const Dimension heads{.size = h.heads * h.head_dim, .unit = h.head_dim};
  AttentionSpec a{
      .name = attention,
      .heads = heads,
      .kv_heads = heads,
      .head_dim = h.head_dim,
      .rope = RopePairing::neighbours,
      .qkv = {.name = attention + ".qkv_proj",
              .parts = {{attention + ".q_proj"}, {attention + ".k_proj"}, {attention + ".v_proj"}}},
      .output = one_linear(attention + ".out_proj", false)};
  MlpSpec m{.name = mlp,
            .width = {.size = mlp_width},
            .up = one_linear(mlp + ".fc_in", true),
            .down = one_linear(mlp + ".fc_out", true)};
  return {.name = layer,
          .mixers = {{.norm = {layer + ".ln_1", norm, true}, .mixer = std::move(a)}},
          .mlps = {{.input = BranchInput::layer_input, .norm = {}, .mlp = std::move(m)}}};
}

DecoderSpec parse_gptj(const JsonFields& c) {
  warn_of_absent(
      c, {"vocab_size", present(c, "n_embd", "hidden_size"),
          present(c, "n_layer", "num_hidden_layers"), present(c, "n_head", "num_attention_heads")});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 50400, kMaxVocab);
  spec.hidden_size = read_size(c, present(c, "n_embd", "hidden_size"), 4096);
  spec.max_positions =
      read_size(c, present(c, "n_positions", "max_position_embeddings"), 2048, kMaxPositions);
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.heads = present(c, "n_head", "num_attention_heads"),
                                  .absent_heads = 16,
                                  .kv_heads = nullptr,
                                  .head_dim = nullptr});
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5), .kind = NormKind::layer};
  spec.kinds = {
      gptj_layer(heads, c.integer_or("n_inner", 1, 4 * kMaxWidth, 4 * spec.hidden_size), norm)};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, "activation_function", "gelu_new");
  spec.layers.assign(
      static_cast<size_t>(read_size(c, present(c, "n_layer", "num_hidden_layers"), 28, kMaxLayers)),
      0);
  const int64_t rotated = read_size(c, "rotary_dim", 64);
  if (rotated % 2 != 0 || rotated > heads.head_dim) {
    fail(ErrorKind::refused, "{}: rotary_dim is {}, of heads of {}: it must be even", c.where(),
         rotated, heads.head_dim);
  }
  spec.ropes = {{.dim = rotated, .max_positions = spec.max_positions}};
  spec.embedding = "transformer.wte";
  spec.norm = {"transformer.ln_f", norm, true};
  spec.head_bias = true;
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", false);
  return spec;
}

DecoderSpec parse_codegen(const JsonFields& c) {
  constexpr int64_t kQuarters = 4;
  DecoderSpec spec = parse_gptj(c);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  if (attention.heads.units() % kQuarters != 0)
    fail(ErrorKind::refused, "{}: {} heads cannot be divided by {}", c.where(),
         attention.heads.units(), kQuarters);
  const std::string name = attention.name + ".qkv_proj";
  const int64_t rows = attention.heads.size / kQuarters;
  const auto part = [&](int64_t i) {
    return PartSpec{name, {.first = i * rows, .group = rows, .stride = 3 * rows}};
  };
  attention.qkv.parts = {part(0), part(2), part(1)};
  return spec;
}

}  // namespace

std::vector<Family> gptj_families() {
  return {{"GPTJForCausalLM", "gptj", parse_gptj, {}},
          {"CodeGenForCausalLM", "codegen", parse_codegen, {"*.attn.causal_mask"}}};
}

}  // namespace sluice
