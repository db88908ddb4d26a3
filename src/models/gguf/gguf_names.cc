// Names of tensors, from the hub's to GGUF's.
#include <algorithm>
#include <array>
#include <cctype>

#include "src/models/gguf/gguf_export.h"

namespace sluice {
namespace {

constexpr std::string_view kLayer = "{}", kExpert = "{e}";

// The end of a name that has none on the hub.
std::string_view end_in_file(const GgufName& row) {
  constexpr std::array<std::string_view, 2> kBiases{"exp_probs_b", "ssm_dt"},
      kAlone{"ssm_a", "ssm_d"};
  const bool is_whole =
      row.name.find('.') != std::string_view::npos || row.end != GgufNameEnd::none;
  if (is_whole || std::ranges::find(kAlone, row.name) != kAlone.end()) return "";
  return std::ranges::find(kBiases, row.name) != kBiases.end() ? ".bias" : ".weight";
}

std::string with_layer(std::string_view name, std::string_view layer) {
  std::string full(name);
  const size_t at = full.find(kLayer);
  return at == std::string::npos ? full : full.replace(at, kLayer.size(), layer);
}

// The number of a layer in a name that begins as the template does; empty: none.
std::string_view layer_in(std::string_view hub_name, std::string_view name) {
  const size_t at = hub_name.find(kLayer);
  if (at == std::string_view::npos || !name.starts_with(hub_name.substr(0, at))) return {};
  const std::string_view rest = name.substr(at);
  const auto digits = std::ranges::find_if_not(
      rest, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return rest.substr(0, static_cast<size_t>(digits - rest.begin()));
}

// Returns whether other rows have the parts of such a tensor, which files have rather.
bool is_in_parts(const GgufArchitecture& architecture, std::string_view gguf_name) {
  constexpr std::string_view kStack = "ffn_gate_up_exps", kPart = "ffn_gate_exps";
  if (gguf_name == "attn_qkv") return architecture.facts.parts_apart;
  return gguf_name == kStack &&
         std::ranges::find(architecture.names, kPart, &GgufName::name) != architecture.names.end();
}

// Templates of the hub's names of a row.
std::vector<std::string> templates_of(const GgufName& row) {
  const std::string name(row.hub_name);
  if (has_no_end(row.end)) return {name};
  return {name + ".weight", name + ".bias"};
}

// The stack that has the tensor as one of its matrices.
std::optional<GgufFileName> stack_of(const GgufArchitecture& architecture, std::string_view name) {
  for (const GgufName& row : architecture.names) {
    if (row.end != GgufNameEnd::slices) continue;
    const auto part = std::ranges::find(architecture.names, fmt::format("{}.{}", row.name, kExpert),
                                        &GgufName::name);
    if (part == architecture.names.end()) continue;
    const std::string_view begin = part->hub_name.substr(0, part->hub_name.find(kExpert));
    if (name.starts_with(begin) && name.ends_with(".weight"))
      return GgufFileName{fmt::format("{}.weight", row.name), row.end};
  }
  return std::nullopt;
}

}  // namespace

std::optional<GgufFileName> gguf_name(const GgufArchitecture& architecture, std::string_view name) {
  constexpr std::array<std::string_view, 3> kEnds{"", ".weight", ".bias"};
  for (const GgufName& row : architecture.names) {
    if (row.hub_name.empty()) continue;
    const std::string_view layer = layer_in(row.hub_name, name);
    std::string own(row.name);
    if (row.hub_name.find(kLayer) != std::string_view::npos) {
      if (layer.empty()) continue;
      own = fmt::format("blk.{}.{}", layer, own);
    }
    for (const std::string_view end : kEnds) {
      if (has_no_end(row.end) && end != end_in_file(row)) continue;
      io::StoredTensor tensor{.name = own + std::string(end), .shape = Shape{1}};
      const std::string gguf = tensor.name;
      rename_gguf_tensor(architecture, tensor);
      if (tensor.name == name && gguf != name) return GgufFileName{gguf, row.end};
    }
  }
  return stack_of(architecture, name);
}

std::vector<std::string> possible_names(const GgufArchitecture& architecture, int64_t layers) {
  std::vector<std::string> names;
  for (const GgufName& row : architecture.names) {
    const bool is_expert = row.hub_name.find(kExpert) != std::string_view::npos;
    if (is_expert || row.hub_name.empty() || is_in_parts(architecture, row.name)) continue;
    const bool in_layer = row.hub_name.find(kLayer) != std::string_view::npos;
    for (const std::string& name : templates_of(row))
      for (int64_t l = 0; l < (in_layer ? layers : 1); ++l)
        names.push_back(with_layer(name, std::to_string(l)));
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

}  // namespace sluice
