#include "src/engine/speculation.h"

#include <algorithm>

namespace sluice {
namespace {

// Shorter ends are found everywhere and say little.
constexpr size_t kShortest = 2;
constexpr size_t kLongest = 4;

}  // namespace

std::vector<int32_t> PromptLookup::guess(std::span<const int32_t> ids, int64_t most) const {
  auto wanted = static_cast<size_t>(std::max<int64_t>(std::min(most, length_), 0));
  for (size_t n = kLongest; n >= kShortest && wanted > 0; --n) {
    if (ids.size() <= n) continue;
    auto end = ids.last(n);
    // The latest place before the end itself.
    auto found = std::find_end(ids.begin(), ids.end() - 1, end.begin(), end.end());
    if (found == ids.end() - 1) continue;
    auto next = found + static_cast<std::ptrdiff_t>(n);
    auto count = std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(wanted), ids.end() - next);
    return {next, next + count};
  }
  return {};
}

void PromptLookup::learn(int64_t guessed, int64_t accepted) {
  if (guessed == 0) return;
  length_ = accepted == guessed ? std::min(2 * length_, kSpeculativeRows - 1) : accepted + 1;
}

}  // namespace sluice
