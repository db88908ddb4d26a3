// AXK2ForCausalLM (A.X K2): DeepSeek-V3.2's layout, where queries and a gate of attention's output
// are one tensor, products of the vectors of lower rank both normed and as they are, and what
// attention and experts read has a gate.
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kAxk2{.vocab_size = 163840,
                               .hidden_size = 2048,
                               .intermediate_size = 5120,
                               .num_hidden_layers = 48,
                               .num_attention_heads = 32,
                               .num_key_value_heads = 32,
                               .max_position_embeddings = 131072,
                               .rms_norm_eps = 1e-6,
                               .rope_theta = 10000};
constexpr MlaDefaults kAxk2Mla{.query_rank = 384,
                               .rank = 128,
                               .rope_dim = 32,
                               .nope_dim = 64,
                               .value_dim = 64,
                               .may_interleave = false};

// Each head has the rows of its queries, then those of its gate.
void use_output_gate(const JsonFields& c, MlaSpec& mla) {
  if (mla.query_rank % kPanelRows != 0)
    fail(ErrorKind::refused, "{}: q_lora_rank is {}, but must be a multiple of {}", c.where(),
         mla.query_rank, kPanelRows);
  const std::string name = mla.query.name;
  const int64_t queries = mla.query_dim(), stride = queries + mla.value_dim;
  mla.queries_of_both = mla.gates_elements = mla.gate_of_queries = true;
  mla.query = {name, {{name, {.group = queries, .stride = stride}}}};
  mla.gate = {mla.name + ".gate",
              {{name, {.first = queries, .group = mla.value_dim, .stride = stride}}}};
}

void use_input_gate(int64_t rank, NormSpec& norm, GateSpec& gate) {
  gate = {.name = norm.name,
          .rank = rank,
          .down = one_linear(norm.name + ".W_down", false),
          .up = one_linear(norm.name + ".W_up", false)};
  norm.name += ".norm";
}

DecoderSpec parse_axk2(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, latent_defaults(c, kAxk2Mla, kAxk2));
  LayerSpec& layer = spec.kinds.front();
  use_mla(c, kAxk2Mla, spec.ropes.front(), layer);
  use_indexer(c, {.heads = 16}, false, layer);
  use_output_gate(c, std::get<MlaSpec>(layer.mixers.front().mixer));
  ExpertsSpec experts = deepseek_experts(c, {.count = 128, .width = 512}, layer.mlps.front().mlp);
  read_grouped_choice(c, {.factor = 2.5}, experts);
  if (experts.choice.groups > 1)
    fail(ErrorKind::refused,
         "{}: n_group is {}: experts of other groups count as 0, which is not supported", c.where(),
         experts.choice.groups);
  use_experts(spec, experts, read_spaced_experts(c, std::ssize(spec.layers), 1));
  const int64_t rank = read_size(c, "gated_norm_rank", 16);
  for (LayerSpec& kind : spec.kinds) {
    MixerBranch& mixer = kind.mixers.front();
    MlpBranch& mlp = kind.mlps.front();
    use_input_gate(rank, mixer.norm, mixer.input_gate);
    if (mlp.experts) use_input_gate(rank, mlp.norm, mlp.input_gate);
  }
  return spec;
}

}  // namespace

std::vector<Family> axk2_families() { return {{"AXK2ForCausalLM", "axk2", parse_axk2, {}}}; }

}  // namespace sluice
