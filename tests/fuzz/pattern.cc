// A regular expression as tokenizer.json holds it, and a text.
#include "src/text/pattern.h"

#include "src/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

bool between_characters(std::string_view text, size_t at) {
  return at == text.size() || (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80;
}

}  // namespace

FUZZ_TARGET(pattern) {
  std::string_view input = test::text_of(data, size);
  std::string expression = to_valid_utf8(test::take_part(input));
  // A pattern may need millions of steps for each character, and is refused only beyond.
  std::string text = to_valid_utf8(input.substr(0, 256));
  return test::taken_or_refused([&] {
    Pattern pattern = Pattern::parse(expression, "input");
    std::vector<TextSpan> matches;
    PatternMatcher(pattern).find_all(text, matches);
    size_t end = 0;
    for (TextSpan match : matches) {
      check(match.begin >= end && match.end >= match.begin && match.end <= text.size(),
            "matches follow each other");
      check(between_characters(text, match.begin) && between_characters(text, match.end),
            "matches are whole characters");
      end = match.end;
    }
  });
}
