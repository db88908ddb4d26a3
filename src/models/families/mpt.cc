// MptForCausalLM (MPT): ALiBi in the place of positions, layer norms and linear layers without
// biases, q, k and v in one tensor.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

LayerSpec mpt_layer(const Heads& h, int64_t hidden, const NormParams& norm) {
  const std::string layer = "transformer.blocks.{}", attention = layer + ".attn",
                    qkv = attention + ".Wqkv";
  const Dimension heads{.size = hidden, .unit = h.head_dim};
  AttentionSpec a{
      .name = attention,
      .heads = heads,
      .kv_heads = heads,
      .head_dim = h.head_dim,
      .alibi = 1,
      .rope = std::nullopt,
      .qkv = {qkv, {{qkv}, {qkv, {.first = hidden}}, {qkv, {.first = 2 * hidden}}}, false},
      .output = one_linear(attention + ".out_proj", false)};
  MlpSpec m{.name = layer + ".ffn",
            .width = {.size = 4 * hidden},
            .activation = Activation::gelu,
            .up = one_linear(layer + ".ffn.up_proj", false),
            .down = one_linear(layer + ".ffn.down_proj", false)};
  return {.name = layer,
          .mixers = {{.norm = {layer + ".norm_1", norm}, .mixer = std::move(a)}},
          .mlps = {{.norm = {layer + ".norm_2", norm}, .mlp = std::move(m)}}};
}

// The settings of attn_config that change a result.
void read_attention(const JsonFields& config, AttentionSpec& attention) {
  if (!config.has("attn_config")) return;
  const JsonFields c(config.raw("attn_config"), config.where() + ": attn_config");
  const auto given = [&](const char* key) { return c.has(key) && !c.is_null(key); };
  if (!read_boolean(c, "alibi", true) || read_size(c, "alibi_bias_max", 8) != 8 ||
      read_boolean(c, "qk_ln", false) || read_boolean(c, "prefix_lm", false))
    fail(ErrorKind::refused,
         "{}: qk_ln, prefix_lm, and positions other than ALiBi with an alibi_bias_max of "
         "8 are not supported",
         c.where());
  if (given("clip_qkv") && c.number("clip_qkv") != 0)  // 0 is none
    attention.clip = read_factor(c, "clip_qkv", 1);
  if (given("softmax_scale")) attention.scale = read_factor(c, "softmax_scale", 1);
}

DecoderSpec parse_mpt(const JsonFields& c) {
  const char* hidden_key = present(c, "d_model", "hidden_size");
  const char* layers_key = present(c, "n_layers", "num_hidden_layers");
  const char* heads_key = present(c, "n_heads", "num_attention_heads");
  warn_of_absent(c, {"vocab_size", hidden_key, layers_key, heads_key});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 50368, kMaxVocab);
  spec.hidden_size = read_size(c, hidden_key, 2048);
  spec.max_positions = read_size(c, "max_seq_len", 2048, kMaxPositions);  // ALiBi has no bound
  const Heads heads = read_heads(
      c, spec.hidden_size,
      {.heads = heads_key, .absent_heads = 16, .kv_heads = nullptr, .head_dim = nullptr});
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5), .kind = NormKind::layer};
  spec.kinds = {mpt_layer(heads, spec.hidden_size, norm)};
  read_attention(c, spec.kinds.front().mixers.front().attention());
  spec.layers.assign(static_cast<size_t>(read_size(c, layers_key, 24, kMaxLayers)), 0);
  spec.embedding = "transformer.wte";
  spec.norm = {"transformer.norm_f", norm};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

}  // namespace

std::vector<Family> mpt_families() { return {{"MptForCausalLM", "mpt", parse_mpt, {}}}; }

}  // namespace sluice
