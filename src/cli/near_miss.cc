#include "src/cli/near_miss.h"

#include <algorithm>

#include "src/base/strings.h"

namespace sluice::cli {

std::optional<std::string> near_miss(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 64;
  if (word.size() > kLongest) return std::nullopt;
  std::optional<std::string> nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& each : known) {
    const size_t d = edit_distance(word, each);
    if (d < least) {
      least = d;
      nearest = each;
    }
  }
  return nearest;
}

}  // namespace sluice::cli
