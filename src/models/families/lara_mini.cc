// LaraMiniForCausalLM (Lara 4 Mini): Qwen3's layout with Qwen3.5's gated DeltaNet in some layers,
// whose inputs are one tensor, windows in others, which alone rotate, and in each layer experts
// beside a shared one.
#include <array>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families/qwen3_5.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLaraMini{.vocab_size = 151936,
                                   .hidden_size = 1024,
                                   .num_hidden_layers = 34,
                                   .num_attention_heads = 16,
                                   .num_key_value_heads = 4,
                                   .head_dim = 128,
                                   .max_position_embeddings = 131072,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000,
                                   .tie_word_embeddings = true};

enum : size_t { kLaraFull, kLaraSliding, kLaraRecurs };

// The rows of in_proj are those of q, k, v, the gate, steps and decays.
GatedDeltaNetSpec lara_delta_net(const JsonFields& c, const std::string& name,
                                 const NormParams& norm) {
  GatedDeltaNetSpec mixer = qwen_delta_net(c, {.key_heads = 8, .value_heads = 16}, name, norm);
  const int64_t keys = mixer.key_heads.size, values = mixer.heads.size;
  const int64_t steps = 2 * (keys + values);
  fuse(mixer.input, mixer.input.name,
       {0, keys, 2 * keys, 2 * keys + values, steps + mixer.heads.units(), steps});
  mixer.norm.name = name + ".out_norm";
  return mixer;
}

// The kind of each layer, by default in a period of five.
std::vector<size_t> lara_layer_kinds(const JsonFields& c, int64_t layers) {
  constexpr std::array<size_t, 5> kPeriod{kLaraRecurs, kLaraSliding, kLaraRecurs, kLaraFull,
                                          kLaraSliding};
  std::vector<size_t> kinds =
      read_layer_types(c, layers, {"full_attention", "sliding_attention", "linear_attention"});
  for (auto l = kinds.size(); l < static_cast<size_t>(layers); ++l)
    kinds.push_back(kPeriod[l % kPeriod.size()]);
  return kinds;
}

DecoderSpec parse_lara_mini(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kLaraMini);
  LayerSpec layer = spec.kinds.front();
  const MlpSpec& mlp = layer.mlps.front().mlp;
  if (mlp.activation != Activation::silu)
    fail(ErrorKind::refused, "{}: hidden_act must be silu", c.where());
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  ExpertsSpec experts = qwen_experts(c, {.absent_count = 128, .absent_top_k = 4}, mlp);
  experts.choice.normalized = read_boolean(c, "norm_topk_prob", true);
  experts.shared_gate.clear();
  spec.kinds.assign(kLaraRecurs + 1, layer);
  spec.kinds[kLaraFull].mixers.front().attention().rope = std::nullopt;
  spec.kinds[kLaraSliding].mixers.front().attention().window =
      read_size(c, "sliding_window", 512, kMaxPositions);
  spec.kinds[kLaraRecurs].mixers.front().mixer =
      lara_delta_net(c, layer.name + ".linear_attn", spec.norm.params);
  spec.layers = lara_layer_kinds(c, std::ssize(spec.layers));
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> lara_mini_families() {
  return {{"LaraMiniForCausalLM", "lara_mini", parse_lara_mini, {}}};
}

}  // namespace sluice
