#include "src/device/arena.h"

#include <algorithm>
#include <iterator>

#include "src/base/check.h"

namespace sluice {

Arena::Arena(uint64_t bytes) {
  if (bytes > 0) gaps_.emplace(0, bytes);
}

std::optional<uint64_t> Arena::take(uint64_t bytes) {
  auto found = std::ranges::find_if(gaps_, [&](const auto& gap) { return gap.second >= bytes; });
  if (bytes == 0 || found == gaps_.end()) return std::nullopt;
  auto [offset, width] = *found;
  gaps_.erase(found);
  if (width > bytes) gaps_.emplace(offset + bytes, width - bytes);
  used_ += bytes;
  return offset;
}

void Arena::give_back(uint64_t offset, uint64_t bytes) {
  check(bytes > 0 && bytes <= used_, "a piece of the arena");
  auto [gap, fresh] = gaps_.emplace(offset, bytes);
  check(fresh, "a piece comes back once");
  used_ -= bytes;
  auto next = std::next(gap);
  if (next != gaps_.end() && gap->first + gap->second == next->first) {
    gap->second += next->second;
    gaps_.erase(next);
  }
  if (gap == gaps_.begin()) return;
  auto before = std::prev(gap);
  if (before->first + before->second != gap->first) return;
  before->second += gap->second;
  gaps_.erase(gap);
}

uint64_t Arena::widest_gap() const {
  uint64_t widest = 0;
  for (const auto& [offset, bytes] : gaps_) widest = std::max(widest, bytes);
  return widest;
}

}  // namespace sluice
