// Words that a mistyped one may have been meant for.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::cli {

// The known word that `word` becomes with the fewest letters put in, left out, exchanged with their
// neighbours or taken for others (restricted Damerau-Levenshtein distance); nullopt: all are
// further away than a third of its letters.
std::optional<std::string> near_miss(std::string_view word, std::span<const std::string> known);

}  // namespace sluice::cli
