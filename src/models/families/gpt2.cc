// GPT2LMHeadModel (GPT-2, DistilGPT-2 and what is trained in their layout). Weights are stored as
// [inputs, outputs]; the names may lack "transformer.", as in the first release.
// GPTBigCodeForCausalLM (StarCoder, SantaCoder): the same with weights as they are elsewhere, and
// one head of keys and values. OpenAIGPTLMHeadModel (GPT): the same with norms behind the blocks.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

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
          .mixers = {{.norm = {layer + ".ln_1", norm, true}, .mixer = std::move(attention)}},
          .mlps = {{.norm = {layer + ".ln_2", norm, true}, .mlp = std::move(mlp)}}};
}

// The weights of a layer as [outputs, inputs]; q, k and v one after the other, or for each head.
void use_bigcode_weights(bool multi_query, LayerSpec& layer) {
  AttentionSpec& a = layer.mixers.front().attention();
  MlpSpec& mlp = layer.mlps.front().mlp;
  for (LinearSpec* linear : {&a.qkv, &a.output, &mlp.up, &mlp.down})
    for (PartSpec& part : linear->parts) part.view.transposed = false;
  if (multi_query) {
    a.kv_heads.size = a.head_dim;
    a.qkv.parts[2].view.first = a.heads.size + a.head_dim;
    return;
  }
  for (size_t i = 0; i < a.qkv.parts.size(); ++i)
    a.qkv.parts[i].view = {.first = static_cast<int64_t>(i) * a.head_dim,
                           .group = a.head_dim,
                           .stride = 3 * a.head_dim};
}

// Scores may be divided by the number of their layer: then each layer is a kind of its own.
void scale_scores(const JsonFields& c, DecoderSpec& spec) {
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  if (!read_boolean(c, "scale_attn_weights", true)) attention.scale = 1;
  if (!read_boolean(c, "scale_attn_by_inverse_layer_idx", false)) return;
  const float scale = attention.scale != 0 ? attention.scale
                                           : 1 / std::sqrt(static_cast<float>(attention.head_dim));
  spec.kinds.resize(spec.layers.size(), spec.kinds.front());
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    spec.layers[l] = l;
    spec.kinds[l].mixers.front().attention().scale = scale / static_cast<float>(l + 1);
  }
}

struct Gpt2Defaults {
  int64_t vocab_size = 50257;
  int64_t positions = 1024;
  std::string_view activation = "gelu_new";
  const char* activation_key = "activation_function";
};

DecoderSpec gpt2_layout(const JsonFields& c, const Gpt2Defaults& absent) {
  warn_of_absent(
      c, {"vocab_size", present(c, "n_embd", "hidden_size"),
          present(c, "n_layer", "num_hidden_layers"), present(c, "n_head", "num_attention_heads")});
  if (read_boolean(c, "add_cross_attention", false))
    fail(ErrorKind::refused, "{}: add_cross_attention is true, which is not supported", c.where());
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", absent.vocab_size, kMaxVocab);
  spec.hidden_size = read_size(c, present(c, "n_embd", "hidden_size"), 768);
  spec.max_positions = read_size(c, present(c, "n_positions", "max_position_embeddings"),
                                 absent.positions, kMaxWidth);
  const Heads heads = read_heads(c, spec.hidden_size,
                                 {.heads = present(c, "n_head", "num_attention_heads"),
                                  .absent_heads = 12,
                                  .kv_heads = nullptr,
                                  .head_dim = nullptr});
  const int64_t mlp_width = c.integer_or("n_inner", 1, 4 * kMaxWidth, 4 * spec.hidden_size);
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5), .kind = NormKind::layer};
  spec.kinds = {gpt2_layer(spec.hidden_size, heads, mlp_width, norm)};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, absent.activation_key, absent.activation);
  spec.layers.assign(
      static_cast<size_t>(read_size(c, present(c, "n_layer", "num_hidden_layers"), 12, kMaxLayers)),
      0);
  spec.embedding = "transformer.wte";
  spec.positions = "transformer.wpe";
  spec.norm = {"transformer.ln_f", norm, true};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

DecoderSpec parse_gpt2(const JsonFields& c) {
  DecoderSpec spec = gpt2_layout(c, {});
  scale_scores(c, spec);
  return spec;
}

DecoderSpec parse_bigcode(const JsonFields& c) {
  DecoderSpec spec = gpt2_layout(c, {.activation = "gelu_pytorch_tanh"});
  LayerSpec& layer = spec.kinds.front();
  use_bigcode_weights(read_boolean(c, "multi_query", true), layer);
  if (!read_boolean(c, "scale_attn_weights", true)) layer.mixers.front().attention().scale = 1;
  return spec;
}

// Its "gelu" is the one by tanh.
DecoderSpec parse_gpt(const JsonFields& c) {
  DecoderSpec spec = gpt2_layout(c, {40478, 512, "gelu", "afn"});
  Activation& activation = spec.kinds.front().mlps.front().mlp.activation;
  if (activation == Activation::gelu) activation = Activation::gelu_tanh;
  spec.embedding = "transformer.tokens_embed";
  spec.positions = "transformer.positions_embed";
  norm_stream(spec);
  return spec;
}

}  // namespace

std::vector<Family> gpt2_families() {
  return {{"GPT2LMHeadModel", "gpt2", parse_gpt2, {}, {"gpt-sw3"}},
          {"GPTBigCodeForCausalLM", "gpt_bigcode", parse_bigcode, {}},
          {"OpenAIGPTLMHeadModel", "openai-gpt", parse_gpt, {}}};
}

}  // namespace sluice
