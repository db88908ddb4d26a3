// HunYuanDenseV1ForCausalLM (Hunyuan, dense): Llama's layout, with norms of each head's q and k
// after rope, whose base a fixed alpha stretches.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families.h"
#include "src/models/layout.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kDefaults{.vocab_size = 290943,
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
  DecoderSpec spec = common_layout(config, kDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention;
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  attention.q_norm = {attention.name + ".query_layernorm", spec.norm.params};
  attention.k_norm = {attention.name + ".key_layernorm", spec.norm.params};
  attention.norms_after_rope = true;
  stretch(spec.ropes.front(), rope_number(config, "alpha", 0), config.where());
  return spec;
}

}  // namespace

std::vector<Family> hunyuan_families() {
  return {{"HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", parse_hunyuan, {}}};
}

}  // namespace sluice
