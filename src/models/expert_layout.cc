#include "src/models/expert_layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/error.h"
#include "src/models/config.h"

namespace sluice {

ExpertsSpec read_experts(const JsonFields& c, const ExpertKeys& keys) {
  const char* count = *keys.count.begin();
  for (const char* key : keys.count) {
    if (c.has(key)) count = key;
  }
  ExpertsSpec experts;
  experts.count = read_size(c, count, keys.absent_count, kMostExperts);
  experts.choice.top_k = read_size(c, keys.top_k, keys.absent_top_k, experts.count);
  return experts;
}

void read_grouped_choice(const JsonFields& c, const GroupedChoice& absent, ExpertsSpec& experts) {
  RouterParams& choice = experts.choice;
  choice.score = RouterScore::sigmoid;
  if (!c.is_null(absent.groups_key)) {
    choice.groups = read_size(c, absent.groups_key, absent.groups, experts.count);
    choice.top_k_groups = read_size(c, "topk_group", absent.top_k_groups, choice.groups);
  }
  choice.normalized = read_flag(c, absent.normalized_key, absent.normalized);
  choice.added = 1e-20F;
  constexpr const char* kFactor = "routed_scaling_factor";
  const bool lacks_factor = absent.may_lack_factor && c.is_null(kFactor);
  choice.factor =
      lacks_factor ? static_cast<float>(absent.factor) : read_factor(c, kFactor, absent.factor);
  if (experts.count % choice.groups != 0)
    fail(ErrorKind::refused, "{}: {} ({}) does not divide the {} experts", c.where(),
         absent.groups_key, choice.groups, experts.count);
  if (choice.top_k > experts.count / choice.groups * choice.top_k_groups)
    fail(ErrorKind::refused, "{}: {} groups of {} experts have fewer than the {} of a token",
         c.where(), choice.top_k_groups, experts.count / choice.groups, choice.top_k);
}

MlpSpec mlp_like(const MlpSpec& mlp, const std::string& name, int64_t width) {
  MlpSpec like = mlp;
  auto rename = [&](std::string& of) { of.replace(0, mlp.name.size(), name); };
  rename(like.name);
  for (std::string& value : like.values) rename(value);
  for (LinearSpec* linear : {&like.up, &like.down}) {
    rename(linear->name);
    for (PartSpec& part : linear->parts) rename(part.source);
  }
  like.width.size = width;
  return like;
}

void name_experts(ExpertsSpec& experts, const MlpSpec& mlp, int64_t width) {
  experts.name = mlp.name;
  experts.router = one_linear(mlp.name + ".gate", false);
  experts.expert = mlp_like(mlp, mlp.name + ".experts.{e}", width);
  experts.expert.up.bias = experts.expert.down.bias = false;
}

void stack_experts(ExpertsSpec& experts, const std::string& gate_up, const std::string& down,
                   bool bare) {
  MlpSpec& expert = experts.expert;
  const int64_t width = expert.width.size;
  expert.up.parts = {{.source = gate_up, .stacked = true, .bare = bare},
                     {.source = gate_up, .view = {.first = width}, .stacked = true, .bare = bare}};
  expert.down.parts = {{.source = down, .stacked = true, .bare = bare}};
}

namespace {

// Reads a part of an expert from the tensor of all experts, where there is one: "a.{e}.b" of "a.b".
void stack_part(PartSpec& part, int64_t layer, const io::CheckpointIndex& index) {
  constexpr std::string_view kExpert = ".{e}";
  const size_t at = part.source.find(kExpert);
  if (at == std::string::npos) return;
  std::string all = part.source;
  all.erase(at, kExpert.size());
  if (!index.is_named(name_in_layer(all, layer) + ".weight")) return;
  part.source = std::move(all);
  part.stacked = true;
}

// Makes the parts of an expert those of stacks that lie apart, where there are such.
void use_stacks_apart(ExpertsSpec& experts, int64_t layer, const io::CheckpointIndex& index) {
  const std::vector<std::string>& from = experts.stacks_apart;
  if (from.empty() || !index.is_named(name_in_layer(from.front(), layer) + ".weight")) return;
  experts.expert.up.parts = {{.source = from[0], .stacked = true},
                             {.source = from[1], .stacked = true}};
  experts.expert.down.parts = {{.source = from[2], .stacked = true}};
}

// Returns whether a stack of gates and ups is [experts, inputs, outputs], as Qwen3-VL's is.
bool has_inputs_first(const io::CheckpointIndex& index, const std::string& gate_up, int64_t width,
                      int64_t inputs) {
  const io::StoredTensor* tensor = index.find(gate_up);
  return tensor != nullptr && tensor->shape.size() == 3 && inputs != 2 * width &&
         tensor->shape[1] == inputs && tensor->shape[2] == 2 * width;
}

}  // namespace

void choose_expert_layout(DecoderSpec& spec, const io::CheckpointIndex& index) {
  for (size_t kind = 0; kind < spec.kinds.size(); ++kind) {
    const auto layer = std::ranges::find(spec.layers, kind) - spec.layers.begin();
    for (MlpBranch& branch : spec.kinds[kind].mlps) {
      if (!branch.experts) continue;
      ExpertsSpec& experts = *branch.experts;
      for (LinearSpec* linear : {&experts.expert.up, &experts.expert.down})
        for (PartSpec& part : linear->parts) stack_part(part, layer, index);
      use_stacks_apart(experts, layer, index);
      if (experts.stacked_gate_up.empty()) continue;
      const std::string stacked = name_in_layer(experts.stacked_gate_up, layer);
      const bool bare = index.is_named(stacked);
      if (!bare && !index.is_named(stacked + ".weight")) continue;
      stack_experts(experts, experts.stacked_gate_up, experts.stacked_down, bare);
      if (bare && has_inputs_first(index, stacked, experts.expert.width.size, spec.hidden_size)) {
        for (LinearSpec* linear : {&experts.expert.up, &experts.expert.down})
          for (PartSpec& part : linear->parts) part.view.transposed = true;
      }
    }
  }
}

void use_experts(DecoderSpec& spec, const ExpertsSpec& experts, const std::vector<bool>& sparse) {
  check(sparse.size() == spec.layers.size(), "each layer has experts or not");
  const std::vector<LayerSpec> before = std::exchange(spec.kinds, {});
  std::map<std::pair<size_t, bool>, size_t> known;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const auto [at, is_new] = known.try_emplace({spec.layers[l], sparse[l]}, spec.kinds.size());
    if (is_new) {
      spec.kinds.push_back(before[spec.layers[l]]);
      if (sparse[l]) spec.kinds.back().mlps.back().experts = experts;
    }
    spec.layers[l] = at->second;
  }
}

std::vector<bool> sparse_from(int64_t first, int64_t layers) {
  std::vector<bool> sparse;
  for (int64_t l = 0; l < layers; ++l) sparse.push_back(l >= first);
  return sparse;
}

std::vector<bool> read_sparse_layers(const JsonFields& c, int64_t layers) {
  const int64_t step = read_size(c, "decoder_sparse_step", 1, kMaxLayers);
  const auto dense = read_numbers(c, "mlp_only_layers");
  std::vector<bool> sparse;
  for (int64_t l = 0; l < layers; ++l) {
    const bool named = dense && std::ranges::count(*dense, static_cast<double>(l)) > 0;
    sparse.push_back(!named && (l + 1) % step == 0);
  }
  return sparse;
}

}  // namespace sluice
