// Beginnings of a text's grapheme clusters (Unicode Standard Annex 29, extended ones). Readers take
// a cluster for one character, such as a letter with its marks.
#pragma once

#include <cstdint>

namespace sluice {

// Is told one character after another. Does not know rule GB9c (Indic conjuncts).
class GraphemeBreaks {
 public:
  // Returns whether a cluster begins with `c`; the first character always begins one.
  bool begins(char32_t c);

 private:
  int32_t previous_ = -1;          // ICU's UGraphemeClusterBreak; -1: none
  bool pictograph_ = false;        // a pictograph stands before, perhaps with Extend behind it
  bool joins_pictograph_ = false;  // and ZWJ
  bool odd_indicators_ = false;    // an odd number of regional indicators stands before
};

}  // namespace sluice
