// LongcatFlashForCausalLM (LongCat-Flash): in each layer latent attention and an MLP, and then both
// again, and experts, which read what the first MLP reads and are added at the end; some of what
// their router chooses from give their input as it is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLongcat{.vocab_size = 131072,
                                  .hidden_size = 6144,
                                  .num_hidden_layers = 28,
                                  .num_attention_heads = 64,
                                  .max_position_embeddings = 131072,
                                  .rms_norm_eps = 1e-5,
                                  .rope_theta = 10000000,
                                  .layers_key = "num_layers"};
constexpr MlaDefaults kLongcatMla{.may_interleave = false};

ExpertsSpec longcat_experts(const JsonFields& c, const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, {.count = {"n_routed_experts", "num_local_experts"},
                                         .absent_count = 512,
                                         .top_k = present(c, "moe_topk", "num_experts_per_tok"),
                                         .absent_top_k = 12});
  experts.identities = c.integer_or("zero_expert_num", 0, kMostExperts - experts.count,
                                    std::min<int64_t>(256, kMostExperts - experts.count));
  experts.choice.factor = read_factor(c, "routed_scaling_factor", 6);
  const char* width = present(c, "expert_ffn_hidden_size", "moe_intermediate_size");
  name_experts(experts, mlp, read_size(c, width, 2048, 4 * kMaxWidth));
  experts.router = one_linear(mlp.name + ".router.classifier", false);
  experts.choice_bias = mlp.name + ".router.e_score_correction_bias";
  return experts;
}

// The first or the second half of a layer, under its names.
void name_half(LayerSpec& half, size_t number) {
  const std::string suffix = fmt::format(".{}", number);
  MixerBranch& mixer = half.mixers.front();
  MlpBranch& mlp = half.mlps.front();
  each<std::string>(mixer.mixer, [&](std::string& name) {
    const std::string attention = half.name + ".self_attn";
    if (name.starts_with(attention)) name.insert(attention.size(), suffix);
  });
  mixer.norm.name += suffix;
  mlp.norm.name += suffix;
  mlp.mlp = mlp_like(mlp.mlp, half.name + ".mlps" + suffix, mlp.mlp.width.size);
}

DecoderSpec parse_longcat_flash(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, latent_defaults(c, kLongcatMla, kLongcat));
  LayerSpec& layer = spec.kinds.front();
  use_mla(c, kLongcatMla, spec.ropes.front(), layer);
  scale_low_ranks(c, spec.hidden_size, std::get<MlaSpec>(layer.mixers.front().mixer));
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.width.size =
      read_size(c, present(c, "ffn_hidden_size", "intermediate_size"), 12288, 4 * kMaxWidth);
  const ExpertsSpec experts = longcat_experts(c, mlp);
  LayerSpec second = layer;
  name_half(layer, 0);
  name_half(second, 1);
  MlpBranch first_mlp = layer.mlps.front();
  layer.mlps.front().experts = experts;
  layer.mlps.front().late = true;
  first_mlp.input = BranchInput::layer_input;
  first_mlp.norm = {};
  layer.mlps.push_back(std::move(first_mlp));
  for (MlpBranch& branch : layer.mlps) branch.behind = 0;
  layer.mixers.push_back(std::move(second.mixers.front()));
  layer.mlps.push_back(std::move(second.mlps.front()));
  for (int64_t e = experts.count; e < experts.choices(); ++e)
    spec.ignorable.push_back(fmt::format("model.layers.*.mlp.experts.{}.*", e));
  return spec;
}

}  // namespace

std::vector<Family> longcat_flash_families() {
  return {{"LongcatFlashForCausalLM", "longcat_flash", parse_longcat_flash, {"model.mtp.*"}}};
}

}  // namespace sluice
