// OPTForCausalLM (OPT): learned positions, whose table begins with two rows of no position; layer
// norms and biases. OPT-350M has its norms behind the blocks, and a smaller embedding.
// BioGptForCausalLM (BioGPT): the same under other names, with a factor of the embedding.
// XGLMForCausalLM (XGLM): the same with sines and cosines of positions in the place of a table.
// CTRLLMHeadModel (CTRL): such positions, too, under names of its own, and a bias of the head.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

LayerSpec opt_layer(const std::string& layer, const Heads& h, int64_t mlp_width, bool bias) {
  const std::string attention = layer + ".self_attn";
  const NormParams norm{.eps = 1e-5F, .kind = NormKind::layer};
  const Dimension heads{.size = h.heads * h.head_dim, .unit = h.head_dim};
  AttentionSpec a{
      .name = attention,
      .heads = heads,
      .kv_heads = heads,
      .head_dim = h.head_dim,
      .rope = std::nullopt,
      .qkv = {.name = attention + ".qkv_proj",
              .parts = {{attention + ".q_proj"}, {attention + ".k_proj"}, {attention + ".v_proj"}},
              .bias = bias},
      .output = one_linear(attention + ".out_proj", bias)};
  MlpSpec m{.name = layer + ".mlp",
            .width = {.size = mlp_width},
            .up = one_linear(layer + ".fc1", bias),
            .down = one_linear(layer + ".fc2", bias)};
  return {
      .name = layer,
      .mixers = {{.norm = {layer + ".self_attn_layer_norm", norm, true}, .mixer = std::move(a)}},
      .mlps = {{.norm = {layer + ".final_layer_norm", norm, true}, .mlp = std::move(m)}}};
}

DecoderSpec parse_opt(const JsonFields& c) {
  warn_of_absent(
      c, {"vocab_size", "hidden_size", "ffn_dim", "num_hidden_layers", "num_attention_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 50272, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 768);
  spec.max_positions = read_size(c, "max_position_embeddings", 2048, kMaxWidth);
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.absent_heads = 12, .kv_heads = nullptr, .head_dim = nullptr});
  const bool norms_before = read_boolean(c, "do_layer_norm_before", true);
  if ((norms_before && read_boolean(c, "_remove_final_layer_norm", false)) ||
      !read_boolean(c, "layer_norm_elementwise_affine", true)) {
    fail(ErrorKind::refused,
         "{}: layer_norm_elementwise_affine must be true, and _remove_final_layer_norm false; "
         "others are not supported",
         c.where());
  }
  spec.kinds = {opt_layer("model.decoder.layers.{}", heads,
                          read_size(c, "ffn_dim", 3072, 4 * kMaxWidth),
                          read_boolean(c, "enable_bias", true))};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, "activation_function", "relu");
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_hidden_layers", 12, kMaxLayers)), 0);
  spec.embedding = "model.decoder.embed_tokens";
  spec.positions = "model.decoder.embed_positions";
  spec.first_position = 2;
  spec.norm = {"model.decoder.final_layer_norm", {.eps = 1e-5F, .kind = NormKind::layer}, true};
  if (!norms_before) norm_stream(spec);
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  const int64_t embedding_size =
      c.integer_or("word_embed_proj_dim", 1, spec.hidden_size, spec.hidden_size);
  if (embedding_size == spec.hidden_size) return spec;
  spec.embedding_size = embedding_size;
  spec.input_projection = "model.decoder.project_in";
  spec.output_projection = "model.decoder.project_out";
  return spec;
}

// Its norms have the epsilon of PyTorch's class, whatever config.json says.
DecoderSpec parse_biogpt(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                     "num_attention_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 42384, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 1024);
  spec.max_positions = read_size(c, "max_position_embeddings", 1024, kMaxWidth);
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.absent_heads = 16, .kv_heads = nullptr, .head_dim = nullptr});
  spec.kinds = {opt_layer("biogpt.layers.{}", heads,
                          read_size(c, "intermediate_size", 4096, 4 * kMaxWidth), true)};
  spec.kinds.front().mlps.front().mlp.activation = read_activation(c, "hidden_act", "gelu");
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_hidden_layers", 24, kMaxLayers)), 0);
  spec.embedding = "biogpt.embed_tokens";
  if (read_boolean(c, "scale_embedding", true))
    spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.positions = "biogpt.embed_positions";
  spec.first_position = 2;
  spec.norm = {"biogpt.layer_norm", {.eps = 1e-5F, .kind = NormKind::layer}, true};
  spec.head = "output_projection";
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

// Frequencies from 1 to 1 / 10000. The first two positions are none of a token.
RopeConfig xglm_sinusoids(int64_t hidden_size, int64_t max_positions) {
  const auto half = static_cast<double>(hidden_size / 2);
  return {.theta = std::pow(10000, half / (half - 1)),
          .dim = hidden_size,
          .first_position = 2,
          .max_positions = max_positions,
          .original_positions = max_positions};
}

DecoderSpec parse_xglm(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "d_model", "ffn_dim", "num_layers", "attention_heads"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 256008, kMaxVocab);
  spec.hidden_size = read_size(c, "d_model", 1024);
  spec.max_positions = read_size(c, "max_position_embeddings", 2048, kMaxPositions);
  if (spec.hidden_size < 4 || spec.hidden_size % 2 != 0)
    fail(ErrorKind::refused, "{}: d_model is {}, but must be even", c.where(), spec.hidden_size);
  const Heads heads = read_heads(
      c, spec.hidden_size,
      {.heads = "attention_heads", .absent_heads = 16, .kv_heads = nullptr, .head_dim = nullptr});
  if (read_boolean(c, "add_cross_attention", false))
    fail(ErrorKind::refused, "{}: add_cross_attention is true, which is not supported", c.where());
  const int64_t mlp_width = read_size(c, "ffn_dim", 4096, 4 * kMaxWidth);
  spec.kinds = {opt_layer("model.layers.{}", heads, mlp_width, true)};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, "activation_function", "gelu");
  spec.layers.assign(static_cast<size_t>(read_size(c, "num_layers", 24, kMaxLayers)), 0);
  if (read_boolean(c, "scale_embedding", true))
    spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.ropes = {xglm_sinusoids(spec.hidden_size, spec.max_positions)};
  spec.sinusoids = 0;
  spec.norm = {"model.layer_norm", {.eps = 1e-5F, .kind = NormKind::layer}, true};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

LayerSpec ctrl_layer(const Heads& h, int64_t mlp_width) {
  const std::string layer = "transformer.h.{}", attention = layer + ".multi_head_attention";
  const NormParams norm{.eps = 1e-6F, .kind = NormKind::layer};
  const Dimension heads{.size = h.heads * h.head_dim, .unit = h.head_dim};
  AttentionSpec a{.name = attention,
                  .heads = heads,
                  .kv_heads = heads,
                  .head_dim = h.head_dim,
                  .rope = std::nullopt,
                  .qkv = {.name = attention + ".Wqkv",
                          .parts = {{attention + ".Wq"}, {attention + ".Wk"}, {attention + ".Wv"}},
                          .bias = true},
                  .output = one_linear(attention + ".dense", true)};
  MlpSpec m{.name = layer + ".ffn",
            .width = {.size = mlp_width},
            .activation = Activation::relu,
            .up = one_linear(layer + ".ffn.0", true),
            .down = one_linear(layer + ".ffn.2", true)};
  return {.name = layer,
          .mixers = {{.norm = {layer + ".layernorm1", norm, true}, .mixer = std::move(a)}},
          .mlps = {{.norm = {layer + ".layernorm2", norm, true}, .mlp = std::move(m)}}};
}

DecoderSpec parse_ctrl(const JsonFields& c) {
  warn_of_absent(c, {"vocab_size", "n_embd", "dff", "n_layer", "n_head"});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 246534, kMaxVocab);
  spec.hidden_size = read_size(c, "n_embd", 1280);
  spec.max_positions = read_size(c, "n_positions", 256, kMaxPositions);
  if (spec.hidden_size % 2 != 0)
    fail(ErrorKind::refused, "{}: n_embd is {}, but must be even", c.where(), spec.hidden_size);
  const Heads heads =
      read_heads(c, spec.hidden_size,
                 {.heads = "n_head", .absent_heads = 16, .kv_heads = nullptr, .head_dim = nullptr});
  const int64_t mlp_width = read_size(c, "dff", 8192, 4 * kMaxWidth);
  spec.kinds = {ctrl_layer(heads, mlp_width)};
  spec.layers.assign(static_cast<size_t>(read_size(c, "n_layer", 48, kMaxLayers)), 0);
  spec.embedding = "transformer.w";
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.ropes = {{.dim = spec.hidden_size,
                 .max_positions = spec.max_positions,
                 .original_positions = spec.max_positions}};
  spec.sinusoids = 0;
  spec.norm = {"transformer.layernorm",
               {.eps = read_eps(c, "layer_norm_epsilon", 1e-6), .kind = NormKind::layer},
               true};
  spec.head_bias = true;
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

}  // namespace

std::vector<Family> opt_families() {
  return {{"OPTForCausalLM", "opt", parse_opt, {}},
          {"BioGptForCausalLM", "biogpt", parse_biogpt, {}},
          {"XGLMForCausalLM", "xglm", parse_xglm, {"model.embed_positions.weights"}},
          {"CTRLLMHeadModel", "ctrl", parse_ctrl, {"transformer.pos_encoding"}}};
}

}  // namespace sluice
