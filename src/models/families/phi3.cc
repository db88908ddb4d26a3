// Phi3ForCausalLM (Phi-3, Phi-3.5, Phi-4 and their mini models): Llama's layout, where q, k and v
// are one tensor, and gate and up another. Phi4MultimodalForCausalLM: its language model.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kPhi3Defaults{.vocab_size = 32064,
                                       .hidden_size = 3072,
                                       .intermediate_size = 8192,
                                       .num_hidden_layers = 32,
                                       .num_attention_heads = 32,
                                       .num_key_value_heads = std::nullopt,
                                       .max_position_embeddings = 4096,
                                       .rms_norm_eps = 1e-5,
                                       .rope_theta = 10000,
                                       .part_key = "partial_rotary_factor",
                                       .original_positions = 4096};

DecoderSpec phi3_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  fuse(attention.qkv, attention.name + ".qkv_proj",
       {0, attention.heads.size, attention.heads.size + attention.kv_heads.size});
  MlpSpec& mlp = layer.mlps.front().mlp;
  fuse(mlp.up, mlp.name + ".gate_up_proj", {0, mlp.width.size});
  RopeConfig& rope = spec.ropes.front();
  rope.keys_follow = rope.kind == RopeKind::longrope;
  use_windows(spec, read_windows(config, std::nullopt, std::ssize(spec.layers)));
  return spec;
}

DecoderSpec parse_phi3(const JsonFields& config) { return phi3_layout(config, kPhi3Defaults); }

constexpr LayoutDefaults kPhi4Multimodal = [] {
  LayoutDefaults defaults = kPhi3Defaults;
  defaults.vocab_size = 200064;
  defaults.num_key_value_heads = 8;
  defaults.max_position_embeddings = 131072;
  return defaults;
}();

DecoderSpec parse_phi4_multimodal(const JsonFields& config) {
  return phi3_layout(config, kPhi4Multimodal);
}

}  // namespace

std::vector<Family> phi3_families() {
  return {{"Phi3ForCausalLM", "phi3", parse_phi3, {}},
          {"Phi4MultimodalForCausalLM",
           "phi4_multimodal",
           parse_phi4_multimodal,
           {"model.embed_tokens_extend.*"}}};
}

}  // namespace sluice
