// OPTForCausalLM (OPT): learned positions, whose table begins with two rows of no position; layer
// norms and biases. OPT-350M has its norms behind the blocks, and a smaller embedding.
// BioGptForCausalLM (BioGPT): the same under other names, with a factor of the embedding.
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

}  // namespace

std::vector<Family> opt_families() {
  return {{"OPTForCausalLM", "opt", parse_opt, {}},
          {"BioGptForCausalLM", "biogpt", parse_biogpt, {}}};
}

}  // namespace sluice
