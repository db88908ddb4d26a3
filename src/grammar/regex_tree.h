// Regular expressions as trees: what their parser finds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/grammar/builder.h"

namespace sluice::grammar {

struct RegexNode {
  enum class Kind : uint8_t {
    characters,  // one of `ranges`
    sequence,    // of `parts`, which may be none
    choice,      // one of `parts`
    repeat,      // the one part, from `low` to `high` times
    begin,       // ^, at the beginning of an alternative of the whole
    end,         // $, at the end of such an alternative, or of one of a look-ahead
    look,        // what comes matches the one part, or with `negative` does not
  };
  Kind kind = Kind::sequence;
  bool negative = false;
  uint32_t low = 0;
  uint32_t high = 0;
  CharRanges ranges = {};
  std::vector<RegexNode> parts = {};

  bool looks() const;  // there is a look-ahead in it, which is never repeated
};

// The whole is a sequence, or a choice of sequences, with anchors at their ends. Error(refused)
// that names the place, as regex.h says.
RegexNode parse_regex(std::string_view pattern, const std::string& where);

}  // namespace sluice::grammar
