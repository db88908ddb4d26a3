// DbrxForCausalLM (DBRX): layer norms and linear layers without biases, clamped q, k and v in one
// tensor, and experts whose matrices lie below one another in one tensor for each of gate, up and
// down.
#include <utility>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/hub_shapes.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// An object of config.json with settings of one module, or an empty one.
Json settings(const JsonFields& c, const char* key) {
  return c.has(key) && !c.is_null(key) ? Json(c.raw(key)) : Json::object();
}

AttentionSpec dbrx_attention(const JsonFields& c, const JsonFields& own, const std::string& name,
                             int64_t hidden) {
  const int64_t heads = read_size(c, "n_heads", 16), kv_heads = read_size(own, "kv_n_heads", 1);
  if (hidden % heads != 0 || heads % kv_heads != 0 || hidden / heads % 2 != 0)
    fail(ErrorKind::refused, "{}: {} heads and {} kv_n_heads do not divide a d_model of {}",
         own.where(), heads, kv_heads, hidden);
  const int64_t head_dim = hidden / heads, keys = kv_heads * head_dim;
  const float clip = read_cap(own, "clip_qkv", 0);
  const std::string qkv = name + ".Wqkv";
  return {.name = name,
          .heads = {.size = hidden, .unit = head_dim},
          .kv_heads = {.size = keys, .unit = head_dim},
          .head_dim = head_dim,
          .qkv = {qkv, {{qkv}, {qkv, {.first = hidden}}, {qkv, {.first = hidden + keys}}}, false},
          .clip = clip,
          .output = one_linear(name + ".out_proj", false)};
}

ExpertsSpec dbrx_experts(const JsonFields& own, const std::string& name) {
  ExpertsSpec experts = read_experts(
      own,
      {.count = {"moe_num_experts"}, .absent_count = 4, .top_k = "moe_top_k", .absent_top_k = 1});
  experts.name = name;
  experts.router = one_linear(name + ".router.layer", false);
  experts.choice.normalized = !own.is_null("moe_normalize_expert_weights");
  if (experts.choice.normalized && read_factor(own, "moe_normalize_expert_weights", 1) != 1)
    fail(ErrorKind::refused, "{}: moe_normalize_expert_weights is not 1 or null", own.where());
  const int64_t width = read_size(own, "ffn_hidden_size", 3584, 4 * kMaxWidth);
  const Json function = settings(own, "ffn_act_fn");
  const Activation activation =
      read_activation({function, own.where() + ": ffn_act_fn"}, "name", "silu");
  const std::string all = name + ".experts.mlp", expert = name + ".experts.{e}";
  auto stack = [&](const char* matrix, bool transposed) {
    return PartSpec{all + matrix, {.transposed = transposed}, true, true};
  };
  experts.expert = {.name = expert,
                    .width = {.size = width},
                    .activation = activation,
                    .up = {expert + ".up", {stack(".w1", false), stack(".v1", false)}, false},
                    .down = {expert + ".down", {stack(".w2", true)}, false}};
  for (const char* part : {".experts.gate_proj", ".experts.up_proj", ".experts.down_proj"})
    experts.stacks_apart.push_back(name + part);
  return experts;
}

DecoderSpec parse_dbrx(const JsonFields& c) {
  constexpr double kTheta = 10000;
  warn_of_absent(c, {"vocab_size", "d_model", "n_layers", "n_heads"});
  const Json of_attention = settings(c, "attn_config"), of_experts = settings(c, "ffn_config");
  const JsonFields attention(of_attention, c.where() + ": attn_config");
  DecoderSpec spec;
  spec.vocab_size = read_size(c, "vocab_size", 32000, kMaxVocab);
  spec.hidden_size = read_size(c, "d_model", 2048);
  spec.max_positions = read_size(c, "max_seq_len", 2048, kMaxPositions);
  const std::string layer = "transformer.blocks.{}", norms = layer + ".norm_attn_norm";
  const NormParams norm{.eps = 1e-5F, .kind = NormKind::layer};
  AttentionSpec mixer = dbrx_attention(c, attention, norms + ".attn", spec.hidden_size);
  // The published configs have the base here, where the class that reads rope fields does not look.
  const double theta = read_factor(attention, "rope_theta", kTheta);
  spec.ropes = {parse_rope(
      c,
      {.head_dim = mixer.head_dim, .max_positions = spec.max_positions, .default_theta = theta})};
  if (attention.has("rope_theta")) spec.ropes.front().theta = theta;
  ExpertsSpec experts = dbrx_experts({of_experts, c.where() + ": ffn_config"}, layer + ".ffn");
  spec.kinds = {{.name = layer,
                 .mixers = {{.norm = {norms + ".norm_1", norm}, .mixer = std::move(mixer)}},
                 .mlps = {{.norm = {norms + ".norm_2", norm}, .experts = std::move(experts)}}}};
  spec.layers.assign(static_cast<size_t>(read_size(c, "n_layers", 24, kMaxLayers)), 0);
  spec.embedding = "transformer.wte";
  spec.norm = {"transformer.norm_f", norm};
  return spec;
}

}  // namespace

// Experts lie below one another in matrices.
std::vector<HubShape> dbrx_hub_shapes(const Model& model) {
  std::vector<HubShape> shapes;
  for (const LayerSpec& layer : model.spec.kinds) {
    const ExpertsSpec& experts = *layer.mlps.front().experts;
    const Shape shape{experts.count * experts.expert.width.size, model.spec.hidden_size};
    for (const LinearSpec* linear : {&experts.expert.up, &experts.expert.down})
      for (const PartSpec& part : linear->parts) shapes.push_back({part.source, shape});
  }
  return shapes;
}

std::vector<Family> dbrx_families() { return {{"DbrxForCausalLM", "dbrx", parse_dbrx, {}}}; }

}  // namespace sluice
