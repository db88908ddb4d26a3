#include "src/plan/bind.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr size_t kMostFaultsShown = 40;

std::string expected_shape(const Piece& piece) {
  return piece.vector ? fmt::format("[{}]", piece.cols)
                      : fmt::format("[{}, {}]", piece.rows, piece.cols);
}

// Empty when the stored tensor can fill the piece.
std::string fault_of(const io::StoredTensor* stored, const Piece& piece) {
  if (stored == nullptr)
    return fmt::format("{} is missing (expected {})", piece.source, expected_shape(piece));
  if (!is_float_weight(stored->dtype)) {
    return fmt::format("{} has dtype {}, which is no weight type (BF16, F16, F32 and F64 are)",
                       piece.source, dtype_name(stored->dtype));
  }
  Shape expected = piece.vector ? Shape{piece.cols} : Shape{piece.rows, piece.cols};
  if (stored->shape == expected) return {};
  bool exchanged = !piece.vector && stored->shape == Shape{piece.cols, piece.rows};
  return fmt::format("{} has shape {}, but config.json asks for {}{}", piece.source,
                     stored->shape.str(), expected.str(),
                     exchanged ? " (its dimensions are exchanged)" : "");
}

// Names of tensors that may be there or not.
std::unordered_set<std::string> kv_scale_names(const CausalLM& root) {
  std::unordered_set<std::string> all;
  for (const KvScaleNames& names : root.kv_scale_names()) {
    all.insert(names.key.begin(), names.key.end());
    all.insert(names.value.begin(), names.value.end());
  }
  return all;
}

}  // namespace

void refuse(std::string_view what, const std::vector<std::string>& faults) {
  size_t shown = std::min(faults.size(), kMostFaultsShown);
  std::string list =
      fmt::format("{}", fmt::join(faults.begin(), faults.begin() + static_cast<long>(shown), "; "));
  if (shown < faults.size()) list += fmt::format("; and {} more", faults.size() - shown);
  fail(ErrorKind::refused, "{}: {}", what, list);
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  std::string_view rest = pattern.substr(star + 1);
  for (size_t skip = star; skip <= text.size(); ++skip) {
    if (matches(rest, text.substr(skip))) return true;
  }
  return false;
}

Binding bind_tensors(Model& model, const io::CheckpointIndex& index) {
  if (index.tensors().empty()) fail(ErrorKind::refused, "the checkpoint holds no tensors");
  Binding binding;
  std::vector<std::string> faults;
  std::unordered_map<std::string_view, const Param*> claimed;
  auto units = model.root->units();
  for (uint32_t u = 0; u < units.size(); ++u) {
    units[u]->each_param([&](Param& param) {
      auto p = static_cast<uint32_t>(binding.params.size());
      binding.params.push_back(&param);
      binding.param_units.push_back(u);
      for (uint32_t i = 0; i < param.pieces.size(); ++i) {
        const Piece& piece = param.pieces[i];
        const io::StoredTensor* stored = index.find(piece.source);
        if (std::string fault = fault_of(stored, piece); !fault.empty())
          faults.push_back(std::move(fault));
        auto [first, fresh] = claimed.emplace(piece.source, &param);
        if (!fresh) {
          faults.push_back(fmt::format("{} is claimed by both {} and {}", piece.source,
                                       first->second->path, param.path));
        }
        binding.tensors.push_back({stored, p, i});
      }
    });
  }
  const std::unordered_set<std::string> kv_scales = kv_scale_names(*model.root);
  const bool kv_scales_used = !model.root->kv_scales().empty();
  for (const io::StoredTensor& t : index.tensors()) {
    if (claimed.contains(t.name)) continue;
    if (kv_scales_used && kv_scales.contains(t.name)) {
      binding.kv_scales.push_back(&t);
      continue;
    }
    // Without elements, or known only from a shard's header, it is nothing that the model is made
    // of.
    bool known =
        t.bytes == 0 || !t.listed || kv_scales.contains(t.name) ||
        std::ranges::any_of(model.ignorable, [&](const auto& p) { return matches(p, t.name); });
    if (known) {
      binding.ignored.push_back(t.name);
    } else {
      faults.push_back(fmt::format("{} is not part of a {} with this config.json", t.name,
                                   model.files.architecture));
    }
  }
  if (!faults.empty()) refuse("the checkpoint does not fit config.json", faults);
  return binding;
}

}  // namespace sluice
