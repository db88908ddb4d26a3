// GPTNeoForCausalLM (GPT-Neo, TinyStories): GPT-2's layout with a matrix each for q, k and v,
// scores that are not scaled, and a window in some layers.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

LayerSpec gpt_neo_layer(const Heads& h, int64_t mlp_width, const NormParams& norm) {
  const std::string layer = "transformer.h.{}", attention = layer + ".attn.attention";
  AttentionSpec a{
      .name = attention,
      .heads = {.size = h.heads * h.head_dim, .unit = h.head_dim},
      .kv_heads = {.size = h.heads * h.head_dim, .unit = h.head_dim},
      .head_dim = h.head_dim,
      .scale = 1,
      .rope = std::nullopt,
      .qkv = {.name = attention + ".qkv_proj",
              .parts = {{attention + ".q_proj"}, {attention + ".k_proj"}, {attention + ".v_proj"}}},
      .output = one_linear(attention + ".out_proj", true)};
  MlpSpec mlp{.name = layer + ".mlp",
              .width = {.size = mlp_width},
              .up = one_linear(layer + ".mlp.c_fc", true),
              .down = one_linear(layer + ".mlp.c_proj", true)};
  return {.name = layer,
          .mixers = {{.norm = {layer + ".ln_1", norm, true}, .mixer = std::move(a)}},
          .mlps = {{.norm = {layer + ".ln_2", norm, true}, .mlp = std::move(mlp)}}};
}

// Returns which layers have a window. attention_types is a list of [names, repetitions].
std::vector<bool> read_local_layers(const JsonFields& c, size_t layers) {
  std::vector<bool> local;
  const auto refuse = [&] {
    fail(ErrorKind::refused,
         "{}: attention_types must have global or local for each of {} layers, as "
         "[[[\"global\", \"local\"], {}]]",
         c.where(), layers, layers / 2);
  };
  const Json absent = Json::array({Json::array({Json::array({"global", "local"}), 12U})});
  const Json& types = c.has("attention_types") ? c.raw("attention_types") : absent;
  if (!types.is_array()) refuse();
  for (const Json& item : types) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_array() || item[0].empty() ||
        !item[1].is_number_unsigned() || item[1].get<uint64_t>() > layers)
      refuse();
    for (auto times = item[1].get<uint64_t>(); times > 0 && local.size() <= layers; --times) {
      for (const Json& name : item[0]) local.push_back(name == "local");
      if (std::ranges::any_of(item[0], [](const Json& n) { return n != "local" && n != "global"; }))
        refuse();
    }
  }
  if (local.size() != layers) refuse();
  return local;
}

DecoderSpec parse_gpt_neo(const JsonFields& c) {
  const char* layers_key = present(c, "num_layers", "num_hidden_layers");
  const char* heads_key = present(c, "num_heads", "num_attention_heads");
  warn_of_absent(c, {"vocab_size", "hidden_size", layers_key, heads_key});
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 50257, kMaxVocab);
  spec.hidden_size = read_size(c, "hidden_size", 2048);
  spec.max_positions = read_size(c, "max_position_embeddings", 2048, kMaxWidth);
  const Heads heads = read_heads(
      c, spec.hidden_size,
      {.heads = heads_key, .absent_heads = 16, .kv_heads = nullptr, .head_dim = nullptr});
  const int64_t mlp_width =
      c.integer_or("intermediate_size", 1, 4 * kMaxWidth, 4 * spec.hidden_size);
  const NormParams norm{.eps = read_eps(c, "layer_norm_epsilon", 1e-5), .kind = NormKind::layer};
  spec.kinds = {gpt_neo_layer(heads, mlp_width, norm)};
  spec.kinds.front().mlps.front().mlp.activation =
      read_activation(c, "activation_function", "gelu_new");
  spec.kinds.push_back(spec.kinds.front());
  spec.kinds.back().mixers.front().attention().window =
      read_size(c, "window_size", 256, kMaxPositions);
  const auto layers = static_cast<size_t>(read_size(c, layers_key, 24, kMaxLayers));
  for (const bool local : read_local_layers(c, layers)) spec.layers.push_back(local ? 1 : 0);
  spec.embedding = "transformer.wte";
  spec.positions = "transformer.wpe";
  spec.norm = {"transformer.ln_f", norm, true};
  spec.tie_word_embeddings = read_boolean(c, "tie_word_embeddings", true);
  return spec;
}

}  // namespace

std::vector<Family> gpt_neo_families() {
  return {{"GPTNeoForCausalLM", "gpt_neo", parse_gpt_neo, {"*.attn.attention.bias"}}};
}

}  // namespace sluice
