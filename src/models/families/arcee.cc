// ArceeForCausalLM (AFM): Llama's layout, with relu(up x)^2 in the place of the gated MLP.
#include "src/models/config.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kArceeDefaults{.vocab_size = 32000,
                                        .hidden_size = 2560,
                                        .intermediate_size = 18432,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .max_position_embeddings = 4096,
                                        .rms_norm_eps = 1e-5,
                                        .rope_theta = 10000,
                                        .hidden_act = "relu2"};

DecoderSpec parse_arcee(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kArceeDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "attention_bias", false);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, "mlp_bias", false);
  use_plain_mlp(mlp, "up_proj", "down_proj");
  return spec;
}

}  // namespace

std::vector<Family> arcee_families() { return {{"ArceeForCausalLM", "arcee", parse_arcee, {}}}; }

}  // namespace sluice
