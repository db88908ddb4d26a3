// ExaoneForCausalLM (EXAONE 3, 3.5, Deep): Llama's layout under GPT-2's names.
// Exaone4ForCausalLM (EXAONE 4): Llama's layout, where blocks read the stream as it is and what
// they compute has a norm; norms of each head's q and k; where there are windows, layers without
// one do not rotate.
// ExaoneMoeForCausalLM (K-EXAONE): the same with norms before blocks, and experts from some layer
// on.
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kExaone4Defaults{.vocab_size = 102400,
                                          .hidden_size = 4096,
                                          .intermediate_size = 16384,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .num_key_value_heads = 32,
                                          .max_position_embeddings = 2048,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000};

// Norms of each head's q and k, and in layers without a window no rope, where others have one.
void use_exaone_attention(const JsonFields& config, DecoderSpec& spec) {
  constexpr int64_t kWindow = 4096, kPattern = 4;
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  const bool typed = config.has("layer_types");  // then the pattern may be letters
  const int64_t each =
      typed ? 0 : config.integer_or("sliding_window_pattern", 1, kMaxLayers, kPattern);
  std::vector<LayerAttention> layers;
  for (int64_t window : read_windows(config, kWindow, std::ssize(spec.layers), each)) {
    const bool turns = window > 0 || config.is_null("sliding_window");
    layers.push_back({.window = window, .rope = turns ? std::optional<size_t>(0) : std::nullopt});
  }
  use_attention(spec, layers);
}

DecoderSpec parse_exaone4(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kExaone4Defaults);
  norm_outputs(spec.kinds.front());
  use_exaone_attention(config, spec);
  return spec;
}

DecoderSpec parse_exaone_moe(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kExaone4Defaults);
  use_exaone_attention(config, spec);
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  ExpertsSpec experts = read_experts(config, {.absent_count = 64, .absent_top_k = 8});
  read_grouped_choice(config, {.factor = 2.5}, experts);
  const int64_t width = read_size(config, "moe_intermediate_size", 1024, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.choice_bias = mlp.name + ".e_score_correction_bias";
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts",
                            width * read_size(config, "num_shared_experts", 1, kMostExperts));
  use_experts(spec, experts, read_mlp_layer_types(config, std::ssize(spec.layers), 1));
  return spec;
}

constexpr LayoutDefaults kExaoneDefaults{.vocab_size = 102400,
                                         .hidden_size = 4096,
                                         .intermediate_size = 14336,
                                         .num_hidden_layers = 32,
                                         .num_attention_heads = 32,
                                         .num_key_value_heads = 8,
                                         .max_position_embeddings = 4096,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 500000};

DecoderSpec parse_exaone(const JsonFields& config) {
  LayoutDefaults defaults = kExaoneDefaults;
  defaults.eps_key = present(config, "layer_norm_epsilon", "rms_norm_eps");
  defaults.activation_key = present(config, "activation_function", "hidden_act");
  defaults.layers_key = present(config, "num_layers", "num_hidden_layers");
  DecoderSpec spec = common_layout(config, defaults);
  spec.embedding = "transformer.wte";
  spec.norm.name = "transformer.ln_f";
  LayerSpec& layer = spec.kinds.front();
  layer.name = "transformer.h.{}";
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  mixer.norm.name = layer.name + ".ln_1";
  mlp.norm.name = layer.name + ".ln_2";
  const std::string attention = layer.name + ".attn.attention";
  const bool bias = read_boolean(config, "attention_bias", false);
  mixer.attention().name = attention;
  mixer.attention().qkv = {
      .name = attention + ".qkv_proj",
      .parts = {{attention + ".q_proj"}, {attention + ".k_proj"}, {attention + ".v_proj"}},
      .bias = bias};
  mixer.attention().output = one_linear(attention + ".out_proj", bias);
  mlp.mlp.up.bias = mlp.mlp.down.bias = read_boolean(config, "mlp_bias", false);
  name_mlp(mlp.mlp, layer.name + ".mlp", "c_fc_0", "c_fc_1", "c_proj");
  return spec;
}

}  // namespace

std::vector<Family> exaone4_families() {
  return {{"ExaoneForCausalLM", "exaone", parse_exaone, {}, {}, false, true},
          {"Exaone4ForCausalLM", "exaone4", parse_exaone4, {}},
          {"ExaoneMoeForCausalLM", "exaone_moe", parse_exaone_moe, {"mtp.*"}}};
}

}  // namespace sluice
