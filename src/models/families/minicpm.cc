// MiniCPMForCausalLM (MiniCPM 1, 2 and 4): Llama's layout, with multipliers of the embedding, of
// what blocks compute, and of logits. MiniCPM3ForCausalLM: the same with latent attention.
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kMiniCpm{.vocab_size = 32000,
                                  .hidden_size = 4096,
                                  .intermediate_size = 11008,
                                  .num_hidden_layers = 32,
                                  .num_attention_heads = 32,
                                  .max_position_embeddings = 2048,
                                  .rms_norm_eps = 1e-6,
                                  .rope_theta = 10000,
                                  .tie_word_embeddings = true};
constexpr LayoutDefaults kMiniCpm3 = [] {
  LayoutDefaults defaults = kMiniCpm;
  defaults.vocab_size = 73448;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6400;
  defaults.num_hidden_layers = 62;
  defaults.num_attention_heads = 40;
  defaults.num_key_value_heads = 40;
  defaults.max_position_embeddings = 32768;
  defaults.rms_norm_eps = 1e-5;
  return defaults;
}();

// The depth and the width that the multipliers undo.
struct ScaleDefaults {
  double embedding = 1;
  double depth = 1;
  double width = 1;
};
void scale(const JsonFields& c, const ScaleDefaults& absent, DecoderSpec& spec) {
  LayerSpec& layer = spec.kinds.front();
  const auto layers = static_cast<double>(spec.layers.size());
  // A null undoes nothing.
  const double depth =
      c.is_null("scale_depth") ? std::sqrt(layers) : read_factor(c, "scale_depth", absent.depth);
  const auto hidden = static_cast<double>(spec.hidden_size);
  const double width =
      c.is_null("dim_model_base") ? hidden : read_factor(c, "dim_model_base", absent.width);
  spec.embedding_multiplier = read_factor(c, "scale_emb", absent.embedding);
  layer.mixers.front().multiplier = layer.mlps.front().multiplier =
      static_cast<float>(depth / std::sqrt(layers));
  spec.logit_multiplier = static_cast<float>(width / hidden);
}

DecoderSpec parse_minicpm(const JsonFields& c) {
  for (const char* key : {"sparse_config", "num_experts"}) {
    if (c.has(key) && c.raw(key) != 0)
      fail(ErrorKind::refused, "{}: {} is there, which is not supported", c.where(), key);
  }
  DecoderSpec spec = common_layout(c, kMiniCpm);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  scale(c, {}, spec);
  return spec;
}

DecoderSpec parse_minicpm3(const JsonFields& c) {
  MlaDefaults mla{
      .query_rank = 768, .rank = 256, .rope_dim = 32, .nope_dim = 64, .may_interleave = false};
  DecoderSpec spec = common_layout(c, latent_defaults(c, mla, kMiniCpm3));
  LayerSpec& layer = spec.kinds.front();
  mla.value_dim = spec.hidden_size / layer.mixers.front().attention().heads.units();
  use_mla(c, mla, spec.ropes.front(), layer);
  std::get<MlaSpec>(layer.mixers.front().mixer).rope = RopePairing::halves;
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(c, "mlp_bias", false);
  scale(c, {.embedding = 12, .depth = 1.4, .width = 256}, spec);
  return spec;
}

}  // namespace

std::vector<Family> minicpm_families() {
  return {{"MiniCPMForCausalLM", "minicpm", parse_minicpm, {}},
          {"MiniCPM3ForCausalLM", "minicpm3", parse_minicpm3, {}}};
}

}  // namespace sluice
