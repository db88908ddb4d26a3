// GptOssForCausalLM (gpt-oss-20b, gpt-oss-120b): Llama's layout with biases,
// sinks of the heads, a window in every other layer, and experts whose gate and
// up are the even and the odd outputs of one tensor.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kGptOssDefaults{.vocab_size = 201088,
                                         .hidden_size = 2880,
                                         .intermediate_size = 2880,
                                         .num_hidden_layers = 36,
                                         .num_attention_heads = 64,
                                         .num_key_value_heads = 8,
                                         .head_dim = 64,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 150000};
constexpr int64_t kGptOssWindow = 128;

// Without rope fields these are the class's.
RopeConfig gpt_oss_rope(const JsonFields& c, const RopeConfig& rope) {
  RopeConfig own = rope;
  if (has_rope_fields(c)) return own;
  own.theta = kGptOssDefaults.rope_theta;
  own.kind = RopeKind::yarn;
  own.factor = 32;
  own.original_positions = 4096;
  own.attention_factor = yarn_mscale(own.factor, 1);
  own.truncate = false;
  return own;
}

// Tensors [experts, inputs, outputs] of all experts, with biases.
ExpertsSpec gpt_oss_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(
      c, {.count = {"num_local_experts", "num_experts"}, .absent_count = 128, .absent_top_k = 4});
  experts.choice.normalized = true;  // a softmax of the chosen ones
  name_experts(experts, mlp, mlp.width.size);
  experts.router = one_linear(mlp.name + ".router", true);
  MlpSpec& expert = experts.expert;
  expert.activation = Activation::clamped_swiglu;
  expert.limit = read_factor(c, "swiglu_limit", 7);
  expert.alpha = read_factor(c, "swiglu_alpha", 1.702);
  const std::string gate_up = mlp.name + ".experts.gate_up_proj";
  const std::string down = mlp.name + ".experts.down_proj";
  auto every_other = [](int64_t first) {
    return View{.transposed = true, .first = first, .group = 1, .stride = 2};
  };
  expert.up.parts = {{gate_up, every_other(0), true, true}, {gate_up, every_other(1), true, true}};
  expert.down.parts = {{down, {.transposed = true}, true, true}};
  expert.up.bias = expert.down.bias = true;
  for (const char* stack : {".experts.gate_proj", ".experts.up_proj", ".experts.down_proj"})
    experts.stacks_apart.push_back(mlp.name + stack);
  return experts;
}

DecoderSpec parse_gpt_oss(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kGptOssDefaults);
  spec.ropes = {gpt_oss_rope(c, spec.ropes.front())};
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", true);
  attention.sinks = attention.name + ".sinks";
  layer.mlps.front().experts = gpt_oss_experts(c, layer.mlps.front().mlp);
  use_windows(spec, read_windows(c, kGptOssWindow, std::ssize(spec.layers), 2));
  return spec;
}

}  // namespace

std::vector<Family> gpt_oss_families() {
  return {{"GptOssForCausalLM", "gpt_oss", parse_gpt_oss, {}}};
}

}  // namespace sluice
