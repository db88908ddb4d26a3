#include "src/models/mlx.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

// Parts of names, and of those that transformers has for single experts, less the expert's number.
constexpr auto kMlxNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {".block_sparse_moe.switch_mlp.gate_proj.", ".block_sparse_moe.experts.w1."},
    {".block_sparse_moe.switch_mlp.down_proj.", ".block_sparse_moe.experts.w2."},
    {".block_sparse_moe.switch_mlp.up_proj.", ".block_sparse_moe.experts.w3."},
    {".switch_mlp.fc1.", ".experts.up_proj."},
    {".switch_mlp.fc2.", ".experts.down_proj."},
    {".switch_mlp.", ".experts."},
    {".experts.switch_glu.", ".experts."},
    {".mlp.gate.gate_proj.", ".mlp.gate."},
    {".self_attn.embed_q.", ".self_attn.k_b_proj."},
    {".self_attn.unembed_out.", ".self_attn.v_b_proj."},
});
constexpr std::string_view kKeysOfHeads = ".self_attn.k_b_proj.";
constexpr std::string_view kValuesOfHeads = ".self_attn.v_b_proj.";

bool has_part(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

std::string hub_name_of(std::string name) {
  for (const auto& [own, hub] : kMlxNames) {
    const size_t at = name.find(own);
    if (at != std::string::npos) return name.replace(at, own.size(), hub);
  }
  return name;
}

// Heads' matrices lie below one another.
Shape without_heads(const Shape& shape) {
  if (shape.size() != 3) return shape;
  const std::optional<int64_t> rows = Shape{shape[0], shape[1]}.elements();
  return rows ? Shape{*rows, shape[2]} : shape;
}

// A convolution's [channels, width, 1], of which transformers has [channels, 1, width].
bool is_convolution(const io::StoredTensor& t) {
  return t.name.ends_with("conv1d.weight") && t.shape.size() == 3 && t.shape[2] == 1 &&
         t.shape[1] != 1;
}

}  // namespace

bool is_mlx(const Json& config) {
  const auto found = config.find("quantization_config");
  return found != config.end() && found->is_object() && found->contains("quant_method") &&
         (*found)["quant_method"] == "mlx";
}

bool lies_as_mlx(const io::CheckpointIndex& stored) {
  return std::ranges::any_of(stored.tensors(), [](const io::StoredTensor& t) {
    return is_convolution(t) || std::ranges::any_of(kMlxNames, [&](const auto& names) {
             return has_part(t.name, names.first);
           });
  });
}

io::CheckpointIndex with_hub_names(const io::CheckpointIndex& stored) {
  std::vector<io::StoredTensor> tensors = stored.tensors();
  for (io::StoredTensor& tensor : tensors) {
    tensor.name = hub_name_of(std::move(tensor.name));
    if (has_part(tensor.name, kKeysOfHeads) || has_part(tensor.name, kValuesOfHeads))
      tensor.shape = without_heads(tensor.shape);
  }
  io::CheckpointIndex index(stored.files(), std::move(tensors), stored.warnings());
  for (const io::FileCopy& copy : stored.copies()) index.add_copy(copy);
  for (io::AbsentTensors absent : stored.absent()) {
    for (std::string& name : absent.names) name = hub_name_of(std::move(name));
    std::ranges::sort(absent.names);
    index.add_absent(std::move(absent));
  }
  index.set_ranks(stored.ranks());
  return index;
}

void refuse_multiplied(const Json& config) {
  constexpr const char* kMultipliers = "ssm_multipliers";
  if (config.contains(kMultipliers))
    fail(ErrorKind::refused,
         "config.json: {} and others are in the weights already, as MLX has them, which is not "
         "supported; give the checkpoint that it was made from",
         kMultipliers);
}

// mlx-lm adds 1 to norms that multiply by 1 + w where it turns convolutions, and not elsewhere.
SourceFacts mlx_facts(const io::CheckpointIndex& stored) {
  SourceFacts facts;
  for (const io::StoredTensor& tensor : stored.tensors()) {
    facts.norms_have_one = facts.norms_have_one || is_convolution(tensor);
    facts.latent_parts = facts.latent_parts || has_part(hub_name_of(tensor.name), kKeysOfHeads);
  }
  return facts;
}

}  // namespace sluice
