// General categories of the characters that Unicode 15.0, 15.1 and 16.0 added. PCRE2 10.42 knows
// Unicode 14; the tokenizers whose ids we reproduce classify by Unicode 16, and one letter taken
// for a symbol changes how a text is split.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

struct CategoryRange {
  uint32_t first;
  uint32_t last;
  char category[3];  // "Lo", "Nd", ...
};

std::span<const CategoryRange> categories_after_unicode_14();

// The lower case of a character that got one in Unicode 16 or 17, which ICU 72 does not know; of
// others themselves.
char32_t lower_case_after_unicode_15(char32_t c);

}  // namespace sluice
