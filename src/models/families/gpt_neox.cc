// GPTNeoXForCausalLM (GPT-NeoX, Pythia, Dolly): attention and MLP side by side, rope on a part of
// each head, q, k and v of a head next to each other in one tensor.
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

LayerSpec gpt_neox_layer(const Heads& h, int64_t mlp_width, const NormParams& norm,
                         bool attention_bias) {
  const std::string layer = "gpt_neox.layers.{}";
  const std::string qkv = layer + ".attention.query_key_value";
  const int64_t d = h.head_dim;
  auto part = [&](int64_t i) {
    return PartSpec{qkv, {.first = i * d, .group = d, .stride = 3 * d}};
  };
  AttentionSpec attention{.name = layer + ".attention",
                          .heads = {.size = h.heads * d, .unit = d},
                          .kv_heads = {.size = h.heads * d, .unit = d},
                          .head_dim = d,
                          .qkv = {qkv, {part(0), part(1), part(2)}, attention_bias},
                          .output = one_linear(layer + ".attention.dense", attention_bias)};
  MlpSpec mlp{.name = layer + ".mlp",
              .width = {.size = mlp_width},
              .up = one_linear(layer + ".mlp.dense_h_to_4h", true),
              .down = one_linear(layer + ".mlp.dense_4h_to_h", true)};
  return {
      .name = layer,
      .mixers = {{.norm = {layer + ".input_layernorm", norm, true}, .mixer = std::move(attention)}},
      .mlps = {{.norm = {layer + ".post_attention_layernorm", norm, true}, .mlp = std::move(mlp)}}};
}

DecoderSpec parse_gpt_neox(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                     "num_attention_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 50432, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 6144);
  spec.max_positions = read_size(c, "max_position_embeddings", 2048, kMaxPositions);
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.absent_heads = 64, .kv_heads = nullptr, .head_dim = nullptr});
  const int64_t mlp_width = read_size(c, "intermediate_size", 24576, 4 * kMaxWidth);
  const NormParams norm{.eps = read_eps(c, "layer_norm_eps", 1e-5), .kind = NormKind::layer};
  spec.kinds = {gpt_neox_layer(heads, mlp_width, norm, read_boolean(c, "attention_bias", true))};
  MlpBranch& mlp = spec.kinds.front().mlps.front();
  mlp.mlp.activation = read_activation(c, "hidden_act", "gelu");
  if (read_boolean(c, "use_parallel_residual", true)) mlp.input = BranchInput::layer_input;
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_hidden_layers", 44, kMaxLayers)), 0);
  spec.ropes = {parse_rope(c, {.head_dim = heads.head_dim,
                               .max_positions = spec.max_positions,
                               .theta_key = "rotary_emb_base",
                               .part_key = "rotary_pct",
                               .default_part = 0.25})};
  spec.embedding = "gpt_neox.embed_in";
  spec.norm = {"gpt_neox.final_layer_norm", norm, true};
  spec.head = "embed_out";
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", false);
  return spec;
}

}  // namespace

std::vector<Family> gpt_neox_families() {
  return {{"GPTNeoXForCausalLM", "gpt_neox", parse_gpt_neox, {"*.attention.bias"}}};
}

}  // namespace sluice
