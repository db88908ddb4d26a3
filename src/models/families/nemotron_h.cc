// NemotronHForCausalLM: each layer is one of Mamba-2, attention without rope, a plain MLP, and
// experts beside a shared one.
#include <algorithm>
#include <limits>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/mamba2.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kNemotronHDefaults{.vocab_size = 131072,
                                            .hidden_size = 4096,
                                            .intermediate_size = 21504,
                                            .num_hidden_layers = 1,
                                            .num_attention_heads = 32,
                                            .num_key_value_heads = 8,
                                            .head_dim = 128,
                                            .max_position_embeddings = 4096,
                                            .rms_norm_eps = 1e-5,
                                            .rope_theta = 10000,
                                            .hidden_act = "relu2",
                                            .eps_key = "layer_norm_epsilon",
                                            .activation_key = "mlp_hidden_act"};

// An older name of the field counts, where it is there.
const char* named(const JsonFields& c, const char* older, const char* key) {
  return c.has(older) ? older : key;
}

Mamba2Spec mamba_mixer(const JsonFields& c, const std::string& name, const DecoderSpec& spec) {
  Mamba2Spec mamba = mamba2_mixer(c, name, spec.hidden_size, spec.norm.params,
                                  {.heads = "mamba_num_heads",
                                   .head_dim = "mamba_head_dim",
                                   .absent_head_dim = 64,
                                   .groups = named(c, "mamba_n_groups", "n_groups"),
                                   .absent_groups = 8,
                                   .state = "ssm_state_size",
                                   .absent_state = 128,
                                   .width = named(c, "mamba_d_conv", "conv_kernel"),
                                   .conv_bias = named(c, "mamba_conv_bias", "use_conv_bias"),
                                   .input_bias = "use_bias",
                                   .output_bias = "use_bias",
                                   .activation = "mamba_hidden_act"});
  // The class takes these for the limits, whatever time_step_limit says.
  mamba.least_step = read_factor(c, named(c, "mamba_dt_min", "time_step_min"), 0.001);
  mamba.most_step = std::numeric_limits<float>::infinity();
  return mamba;
}

enum : size_t { kMamba, kAttention, kMlp, kExperts };

// A letter a layer, or a name.
std::vector<size_t> layer_kinds(const JsonFields& c) {
  constexpr std::string_view kLetters = "M*-E";
  std::vector<size_t> kinds;
  const char* types = named(c, "layer_types", "layers_block_type");
  if (c.has(types)) {
    const auto layers = static_cast<int64_t>(c.raw(types).size());
    for (size_t kind : read_layer_types(
             c, layers, {"mamba", "attention", "mlp", "moe", "linear_attention", "full_attention"},
             types))
      kinds.push_back(kind % 4);
  } else {
    for (char letter : c.string("hybrid_override_pattern")) {
      kinds.push_back(kLetters.find(letter));
      if (kinds.back() == std::string_view::npos)
        fail(ErrorKind::refused, "{}: hybrid_override_pattern has letters other than {}", c.where(),
             kLetters);
    }
  }
  if (kinds.empty() || std::ssize(kinds) > kMaxLayers)
    fail(ErrorKind::refused, "{}: {} layers are absurd", c.where(), kinds.size());
  if (std::ranges::none_of(kinds, [](size_t kind) { return kind == kMamba || kind == kAttention; }))
    fail(ErrorKind::refused, "{}: no layer has Mamba-2 or attention, which is not supported",
         c.where());
  return kinds;
}

// Experts may read and make rows smaller than the stream's; the shared one does not.
ExpertsSpec read_moe(const JsonFields& c, int64_t hidden_size, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(
      c,
      {.count = {"n_routed_experts", "num_local_experts"}, .absent_count = 8, .absent_top_k = 2});
  read_grouped_choice(c, {.normalized = true}, experts);
  name_experts(experts, mlp, read_size(c, "moe_intermediate_size", 7688, 4 * kMaxWidth));
  experts.choice_bias = mlp.name + ".gate.e_score_correction_bias";
  experts.shared =
      mlp_like(mlp, mlp.name + ".shared_experts",
               read_size(c, "moe_shared_expert_intermediate_size", 7688, 4 * kMaxWidth));
  if (!c.has("moe_latent_size")) return experts;
  experts.latent_size = c.integer("moe_latent_size", 1, hidden_size);
  experts.latent_in = one_linear(mlp.name + ".fc1_latent_proj", mlp.up.bias);
  experts.latent_out = one_linear(mlp.name + ".fc2_latent_proj", mlp.up.bias);
  return experts;
}

DecoderSpec parse_nemotron_h(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kNemotronHDefaults);
  spec.ropes.clear();
  spec.embedding = "backbone.embeddings";
  spec.norm.name = "backbone.norm_f";
  const std::string layer = "backbone.layers.{}", mixer = layer + ".mixer";
  const NormSpec norm{layer + ".norm", spec.norm.params};
  AttentionSpec attention = spec.kinds.front().mixers.front().attention();
  attention.name = mixer;
  attention.qkv.name = mixer + ".qkv_proj";
  attention.qkv.parts = {{mixer + ".q_proj"}, {mixer + ".k_proj"}, {mixer + ".v_proj"}};
  attention.output = one_linear(mixer + ".o_proj", false);
  attention.rope = std::nullopt;
  MlpBranch mlp = spec.kinds.front().mlps.front();
  mlp.norm = norm;
  mlp.mlp.name = mixer;
  mlp.mlp.up.bias = mlp.mlp.down.bias = read_boolean(c, "mlp_bias", false);
  use_plain_mlp(mlp.mlp, "up_proj", "down_proj");
  MixerBranch mamba{.norm = norm};
  mamba.mixer = mamba_mixer(c, mixer, spec);
  spec.kinds = {{.name = layer, .mixers = {std::move(mamba)}, .mlps = {}},
                {.name = layer, .mixers = {{.norm = norm, .mixer = attention}}, .mlps = {}},
                {.name = layer, .mixers = {}, .mlps = {mlp}}};
  spec.layers = layer_kinds(c);
  if (std::ranges::count(spec.layers, kExperts) > 0) {
    mlp.experts = read_moe(c, spec.hidden_size, mlp.mlp);
    spec.kinds.push_back({.name = layer, .mixers = {}, .mlps = {std::move(mlp)}});
  }
  spec.prefixes = {"backbone.", "model.", "language_model.backbone."};
  return spec;
}

}  // namespace

std::vector<Family> nemotron_h_families() {
  return {{"NemotronHForCausalLM", "nemotron_h", parse_nemotron_h, {"mtp.*"}}};
}

}  // namespace sluice
