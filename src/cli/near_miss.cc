#include "src/cli/near_miss.h"

#include <algorithm>
#include <vector>

namespace sluice::cli {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last.back();
}

}  // namespace

std::optional<std::string> near_miss(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 64;
  if (word.size() > kLongest) return std::nullopt;
  std::optional<std::string> nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& each : known) {
    const size_t d = distance(word, each);
    if (d < least) {
      least = d;
      nearest = each;
    }
  }
  return nearest;
}

}  // namespace sluice::cli
