// MistralForCausalLM (7B, Nemo, Small), MinistralForCausalLM and
// Ministral3ForCausalLM (Ministral 3, Devstral Small 2): Llama's layout, where
// some or all layers attend to a window; in the last queries grow with their
// position. Mistral4ForCausalLM (Mistral Small 4): the same with latent
// attention, and with experts beside a shared one.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Both classes have the same defaults.
constexpr LayoutDefaults kMistralDefaults{.vocab_size = 32000,
                                          .hidden_size = 4096,
                                          .intermediate_size = 14336,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .num_key_value_heads = 8,
                                          .max_position_embeddings = 131072,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 10000};
constexpr int64_t kMistralWindow = 4096;
constexpr LayoutDefaults kMinistral3 = [] {
  LayoutDefaults defaults = kMistralDefaults;
  defaults.vocab_size = 131072;
  defaults.num_hidden_layers = 34;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 262144;
  defaults.rms_norm_eps = 1e-5;
  return defaults;
}();

DecoderSpec parse_mistral(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kMistralDefaults);
  use_windows(spec, read_windows(config, kMistralWindow, std::ssize(spec.layers)));
  return spec;
}

// Without rope fields these are the class's.
RopeConfig ministral3_rope(const JsonFields& config, const RopeConfig& rope) {
  RopeConfig own = rope;
  if (has_rope_fields(config)) return own;
  own.theta = 1000000;
  own.kind = RopeKind::yarn;
  own.factor = 16;
  own.original_positions = 16384;
  return own;
}

DecoderSpec parse_ministral3(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kMinistral3);
  use_windows(spec, read_windows(config, std::nullopt, std::ssize(spec.layers)));
  RopeConfig rope = ministral3_rope(config, spec.ropes.front());
  spec.ropes = {rope, rope};
  spec.ropes[1].position_beta = rope_number(config, "llama_4_scaling_beta", 0.1);
  check_angles(spec.ropes[1], config.where());
  for (LayerSpec& layer : spec.kinds) layer.mixers.front().attention().query_angles = 1;
  return spec;
}

constexpr LayoutDefaults kMistral4 = [] {
  LayoutDefaults defaults = kMistralDefaults;
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 12288;
  defaults.num_hidden_layers = 36;
  defaults.num_key_value_heads = 32;
  defaults.max_position_embeddings = 1048576;
  defaults.part_key = "partial_rotary_factor";
  return defaults;
}();

// Without rope fields these are the class's.
RopeConfig mistral4_rope(const JsonFields& c, const RopeConfig& rope) {
  RopeConfig own = rope;
  if (has_rope_fields(c)) return own;
  own.theta = 10000;
  own.kind = RopeKind::yarn;
  own.factor = 128;
  own.original_positions = 8192;
  return own;
}

// Both parts of a query grow with its position.
void scale_queries(const JsonFields& c, DecoderSpec& spec, MlaSpec& mla) {
  const RopeConfig rope = spec.ropes.front();
  spec.ropes.push_back(rope);
  spec.ropes.back().position_beta = rope_number(c, "llama_4_scaling_beta", 0.1);
  spec.ropes.push_back({.kind = RopeKind::proportional,
                        .dim = mla.nope_dim,
                        .max_positions = rope.max_positions,
                        .original_positions = rope.original_positions,
                        .position_beta = spec.ropes.back().position_beta});
  mla.query_angles = 1;
  mla.nope_angles = 2;
  for (const RopeConfig& own : spec.ropes) check_angles(own, c.where());
}

DecoderSpec parse_mistral4(const JsonFields& c) {
  constexpr MlaDefaults kMla{.query_rank = 1024, .rank = 256, .nope_dim = 64};
  LayoutDefaults defaults = kMistral4;
  defaults.head_dim = read_query_dim(c, kMla);
  defaults.fixed_head_dim = true;
  defaults.part =
      static_cast<double>(read_rope_dim(c, kMla)) / static_cast<double>(read_query_dim(c, kMla));
  DecoderSpec spec = common_layout(c, defaults);
  spec.ropes = {mistral4_rope(c, spec.ropes.front())};
  LayerSpec& layer = spec.kinds.front();
  use_mla(c, kMla, spec.ropes.front(), layer);
  auto& mla = std::get<MlaSpec>(layer.mixers.front().mixer);
  if (!has_rope_fields(c)) mla.scale *= static_cast<float>(std::pow(yarn_mscale(128, 1), 2));
  if (mla.nope_dim % 2 != 0)
    fail(ErrorKind::refused, "{}: qk_nope_head_dim must be even", c.where());
  scale_queries(c, spec, mla);
  ExpertsSpec experts = deepseek_experts(c, {.count = 128, .top_k = 4}, layer.mlps.front().mlp);
  read_grouped_choice(c, {}, experts);
  experts.choice.score = RouterScore::softmax;
  experts.choice_bias.clear();
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 0);
  use_experts(spec, experts, sparse_from(dense, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> mistral_families() {
  std::vector<std::string_view> ignorable{"vision_tower.*"};
  return {{"MistralForCausalLM", "mistral", parse_mistral, ignorable},
          {"MinistralForCausalLM", "ministral", parse_mistral, ignorable},
          {"Ministral3ForCausalLM", "ministral3", parse_ministral3, {}},
          {"Mistral4ForCausalLM", "mistral4", parse_mistral4, {}}};
}

}  // namespace sluice
