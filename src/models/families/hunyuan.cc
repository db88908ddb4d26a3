// HunYuanDenseV1ForCausalLM (Hunyuan): Llama's layout, with norms of each head's q and k after
// rope, whose base a fixed alpha stretches. HunYuanMoEV1ForCausalLM (Hunyuan A13B): the same with
// experts beside a shared one. HYV3ForCausalLM (Hy3): norms before rope, and from the second layer
// on experts beside a shared one, chosen by sigmoids with a bias.
#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kHunyuanDefaults{.vocab_size = 290943,
                                          .hidden_size = 4096,
                                          .intermediate_size = 11008,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .max_position_embeddings = 2048,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000};

// Checkpoints call it dynamic; the length of a sequence changes nothing.
void stretch(RopeConfig& rope, double alpha, const std::string& where) {
  if (rope.kind != RopeKind::dynamic || alpha == 0) return;
  if (!(alpha > 0))
    fail(ErrorKind::refused, "{}: rope's alpha is {}, but must be positive", where, alpha);
  const auto dim = static_cast<double>(rope.dim);
  rope.kind = RopeKind::plain;
  rope.theta *= std::pow(alpha, dim / (dim - 2));
  check_angles(rope, where);
}

DecoderSpec parse_hunyuan(const JsonFields& config) {
  LayoutDefaults defaults = kHunyuanDefaults;
  defaults.tie_word_embeddings =
      config.string_or("model_type", "").starts_with("hunyuan_vl");  // a class of its own
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".query_layernorm", spec.norm.params};
  attention.k_norm = {attention.name + ".key_layernorm", spec.norm.params};
  attention.norms_after_rope = true;
  stretch(spec.ropes.front(), rope_number(config, "alpha", 0), config.where());
  return spec;
}

// A number, or a list of one for each layer, all the same.
int64_t read_of_layers(const JsonFields& c, const char* key, int64_t absent, int64_t most) {
  if (!c.has(key) || !c.raw(key).is_array()) return read_size(c, key, absent, most);
  const std::vector<double> list = read_numbers(c, key).value_or(std::vector<double>{});
  if (list.empty() || list.front() < 1 || list.front() > static_cast<double>(most) ||
      list.front() != std::floor(list.front()) ||
      std::ranges::any_of(list, [&](double x) { return x != list.front(); }))
    fail(ErrorKind::refused, "{}: {} must be one number for all layers, from 1 to {}", c.where(),
         key, most);
  return static_cast<int64_t>(list.front());
}

DecoderSpec parse_hunyuan_moe(const JsonFields& c) {
  DecoderSpec spec = parse_hunyuan(c);
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  ExpertsSpec experts;
  experts.count = read_of_layers(c, "num_experts", 1, kMostExperts);
  experts.choice.top_k = read_of_layers(c, "moe_topk", 1, experts.count);
  experts.choice.normalized = true;
  name_experts(experts, mlp, mlp.width.size);
  experts.router = one_linear(mlp.name + ".gate.wg", false);
  experts.shared = mlp_like(mlp, mlp.name + ".shared_mlp", mlp.width.size);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

constexpr LayoutDefaults kHyV3{.vocab_size = 120832,
                               .hidden_size = 4096,
                               .intermediate_size = 13312,
                               .num_hidden_layers = 80,
                               .num_attention_heads = 64,
                               .num_key_value_heads = 8,
                               .head_dim = 128,
                               .max_position_embeddings = 131072,
                               .rms_norm_eps = 1e-5,
                               .rope_theta = 11158840};

DecoderSpec parse_hy_v3(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kHyV3);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(c, "mlp_bias", false);
  ExpertsSpec experts = read_experts(c, {.absent_count = 192, .absent_top_k = 8});
  const int64_t width = read_size(c, "moe_intermediate_size", 1536, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.router = one_linear(mlp.name + ".router.gate", false);
  experts.choice_bias = mlp.name + ".expert_bias";
  experts.choice.score = RouterScore::sigmoid;
  experts.choice.normalized = true;
  experts.choice.added = 1e-20F;
  experts.choice.factor = read_factor(c, "router_scaling_factor", 2.826);
  experts.shared = mlp_like(mlp, mlp.name + ".shared_mlp",
                            width * read_size(c, "num_shared_experts", 1, kMostExperts));
  use_experts(spec, experts, read_mlp_layer_types(c, std::ssize(spec.layers), 1));
  ignore_more_layers(c, spec);
  return spec;
}

}  // namespace

std::vector<Family> hunyuan_families() {
  return {{"HunYuanDenseV1ForCausalLM",
           "hunyuan_v1_dense",
           parse_hunyuan,
           {},
           {"hunyuan_vl_text", "hunyuan_vl"}},
          {"HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", parse_hunyuan_moe, {}},
          {"HYV3ForCausalLM", "hy_v3", parse_hy_v3, {}}};
}

}  // namespace sluice
