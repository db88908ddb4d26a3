// Phi3ForCausalLM (Phi-3, Phi-3.5, Phi-4 and their mini models): Llama's layout, where q, k and v
// are one tensor, and gate and up another.
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

DecoderSpec parse_phi3(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kPhi3Defaults);
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

}  // namespace

std::vector<Family> phi3_families() { return {{"Phi3ForCausalLM", "phi3", parse_phi3, {}}}; }

}  // namespace sluice
