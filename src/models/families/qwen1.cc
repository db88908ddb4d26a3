// QWenLMHeadModel (Qwen 1): Llama's layout under GPT-2's names; q, k and v are one tensor with a
// bias, and the first matrix of an MLP is up, the second its gate. Sequences beyond the context
// that the model was trained with are not stretched.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Defaults of the class that checkpoints bring along. The MLP is half as wide as
// intermediate_size says.
constexpr LayoutDefaults kQwen1{.vocab_size = 151936,
                                .hidden_size = 4096,
                                .intermediate_size = 22016,
                                .num_hidden_layers = 32,
                                .num_attention_heads = 32,
                                .max_position_embeddings = 8192,
                                .rms_norm_eps = 1e-6,
                                .rope_theta = 10000,
                                .eps_key = "layer_norm_epsilon",
                                .positions_key = "seq_length"};

DecoderSpec parse_qwen1(const JsonFields& c) {
  LayoutDefaults defaults = kQwen1;
  defaults.positions_key = present(c, "seq_length", "max_position_embeddings");
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec& layer = spec.kinds.front();
  layer.name = "transformer.h.{}";
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  AttentionSpec& attention = mixer.attention();
  spec.ropes = {parse_rope(c, {.head_dim = attention.head_dim,
                               .max_positions = spec.max_positions,
                               .default_theta = kQwen1.rope_theta,
                               .theta_key = "rotary_emb_base"})};
  mixer.norm.name = layer.name + ".ln_1";
  mlp.norm.name = layer.name + ".ln_2";
  attention.name = layer.name + ".attn";
  const int64_t size = attention.heads.size;
  fuse(attention.qkv, attention.name + ".c_attn", {0, size, 2 * size});
  attention.qkv.bias = true;
  attention.output = one_linear(attention.name + ".c_proj", false);
  name_mlp(mlp.mlp, layer.name + ".mlp", "w2", "w1", "c_proj");
  mlp.mlp.width.size /= 2;
  spec.embedding = "transformer.wte";
  spec.norm.name = "transformer.ln_f";
  return spec;
}

}  // namespace

std::vector<Family> qwen1_families() {
  return {{"QWenLMHeadModel", "qwen", parse_qwen1, {"transformer.visual.*"}}};
}

}  // namespace sluice
