// Llama4ForCausalLM and the language model in Llama4ForConditionalGeneration
// (Scout, Maverick): most layers rotate and attend within chunks; the others
// attend to all, do not rotate, and have queries that grow with their position.
// Experts take inputs times their weights, beside a shared one.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLlama4Defaults{.vocab_size = 202048,
                                         .hidden_size = 5120,
                                         .intermediate_size = 8192,
                                         .num_hidden_layers = 48,
                                         .num_attention_heads = 40,
                                         .num_key_value_heads = 8,
                                         .head_dim = 128,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 500000};

// Layers that rotate.
std::vector<bool> read_turning_layers(const JsonFields& c, int64_t layers) {
  const auto given = read_numbers(c, "no_rope_layers");  // a 1 is a layer that rotates
  const int64_t interval = read_size(c, "no_rope_layer_interval", 4, kMaxLayers);
  if (given && !given->empty() && std::ssize(*given) != layers)
    fail(ErrorKind::refused, "{}: no_rope_layers must be {} numbers", c.where(), layers);
  std::vector<bool> turning;
  for (int64_t l = 0; l < layers; ++l)
    turning.push_back(given && !given->empty() ? (*given)[static_cast<size_t>(l)] != 0
                                               : (l + 1) % interval != 0);
  return turning;
}

// MobileLLM has none.
bool has_experts(const JsonFields& c) {
  return c.integer_or("num_local_experts", 0, INT32_MAX, 1) > 0;
}

std::vector<bool> read_expert_layers(const JsonFields& c, int64_t layers) {
  const auto given = read_numbers(c, "moe_layers");
  const int64_t step = given ? 1 : read_size(c, "interleave_moe_layer_step", 1, kMaxLayers);
  std::vector<bool> sparse;
  for (int64_t l = 0; l < layers; ++l)
    sparse.push_back(given ? std::ranges::count(*given, static_cast<double>(l)) > 0
                           : (l + 1) % step == 0);
  return sparse;
}

// Tensors [experts, inputs, outputs] of all experts.
ExpertsSpec llama4_experts(const JsonFields& c, const MlpSpec& mlp, int64_t width) {
  ExpertsSpec experts =
      read_experts(c, {.count = {"num_local_experts"}, .absent_count = 16, .absent_top_k = 1});
  experts.choice.score = RouterScore::sigmoid;
  experts.weighs_input = true;
  name_experts(experts, mlp, width);
  experts.router = one_linear(mlp.name + ".router", false);
  stack_experts(experts, mlp.name + ".experts.gate_up_proj", mlp.name + ".experts.down_proj", true);
  for (PartSpec& part : experts.expert.up.parts) part.view.transposed = true;
  experts.expert.down.parts.front().view.transposed = true;
  for (const char* part : {".experts.gate_proj", ".experts.up_proj", ".experts.down_proj"})
    experts.stacks_apart.push_back(mlp.name + part);
  experts.shared = mlp_like(mlp, mlp.name + ".shared_expert", width);
  return experts;
}

// Angles that are zeros for keys and queries of layers that do not rotate.
void add_still_ropes(const JsonFields& c, int64_t head_dim, DecoderSpec& spec) {
  RopeConfig still{.kind = RopeKind::proportional,
                   .dim = head_dim,
                   .max_positions = spec.max_positions,
                   .original_positions = spec.max_positions};
  spec.ropes.push_back(still);
  const double floor_scale = c.number_or("floor_scale", 8192);  // may be written as 8192.0
  if (!(floor_scale >= 1) || floor_scale > static_cast<double>(kMaxPositions))
    fail(ErrorKind::refused, "{}: floor_scale is {}", c.where(), floor_scale);
  still.original_positions = static_cast<int64_t>(floor_scale);
  still.position_beta = read_factor(c, "attn_scale", 0.1);
  still.position_offset = 1;
  spec.ropes.push_back(still);
}

// The first releases have a number here.
bool is_tuned(const JsonFields& c) {
  constexpr const char* kKey = "attn_temperature_tuning";
  if (c.has(kKey) && c.raw(kKey).is_number()) return c.number(kKey) != 0;
  return read_boolean(c, kKey, true);
}

// The layers that attend to chunks: by layer_types, else those that rotate.
std::vector<bool> read_chunked_layers(const JsonFields& c, const std::vector<bool>& turning) {
  std::vector<bool> chunked;
  for (const size_t kind :
       read_layer_types(c, std::ssize(turning), {"full_attention", "chunked_attention"}))
    chunked.push_back(kind == 1);
  return chunked.empty() ? turning : chunked;
}

// Kinds of layers: those that rotate, and those that do not, each with chunks and without.
void make_attentions(const JsonFields& c, DecoderSpec& spec) {
  const auto layers = std::ssize(spec.layers);
  LayerSpec still = spec.kinds.front();
  AttentionSpec& turning = spec.kinds.front().mixers.front().attention();
  turning.rope = RopePairing::neighbours;
  int64_t chunk = 0;
  if (!c.is_null("attention_chunk_size"))
    chunk = read_size(c, "attention_chunk_size", 8192, kMaxPositions);
  if (read_boolean(c, "use_qk_norm", true)) {
    const NormSpec norm{turning.name + ".qk_norm", spec.norm.params, false, false};
    turning.q_norm = turning.k_norm = norm;
    turning.norms_after_rope = true;
  }
  AttentionSpec& others = still.mixers.front().attention();
  others.rope = std::nullopt;
  if (is_tuned(c)) {
    add_still_ropes(c, others.head_dim, spec);
    others.rope = RopePairing::neighbours;
    others.angles = 1;
    others.query_angles = 2;
  }
  spec.kinds.push_back(std::move(still));
  for (const size_t kind : {0, 1}) {
    LayerSpec chunked = spec.kinds[kind];
    chunked.mixers.front().attention().chunk = chunk;
    spec.kinds.push_back(std::move(chunked));
  }
  const std::vector<bool> turns = read_turning_layers(c, layers);
  const std::vector<bool> chunks = read_chunked_layers(c, turns);
  for (size_t l = 0; l < turns.size(); ++l)
    spec.layers[l] = (turns[l] ? 0 : 1) + (chunks[l] ? 2 : 0);
}

DecoderSpec parse_llama4(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kLlama4Defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  MlpSpec& mlp = layer.mlps.front().mlp;
  name_mlp(mlp, layer.name + ".feed_forward", "gate_proj", "up_proj", "down_proj");
  const int64_t width = mlp.width.size;
  mlp.width.size = read_size(c, "intermediate_size_mlp", 16384, 4 * kMaxWidth);
  if (!has_experts(c)) {
    make_attentions(c, spec);
    return spec;
  }
  const ExpertsSpec experts = llama4_experts(c, mlp, width);
  make_attentions(c, spec);
  use_experts(spec, experts, read_expert_layers(c, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> llama4_families() {
  return {{"Llama4ForCausalLM", "llama4_text", parse_llama4, {}}};
}

}  // namespace sluice
