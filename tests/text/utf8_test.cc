#include "src/text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/random.h"

namespace sluice {
namespace {

TEST(Utf8, EveryCodePointSurvives) {
  std::string text;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text.clear();
    append_utf8(c, text);
    ASSERT_EQ(to_valid_utf8(text), text) << static_cast<uint32_t>(c);
    Utf8Char first = utf8_char_at(text, 0);
    ASSERT_EQ(first.code_point, c);
    ASSERT_EQ(first.bytes, static_cast<int>(text.size()));
    ASSERT_EQ(utf8_char_before("x" + text, 1 + text.size()).code_point, c);
  }
}

// Replaces as Python's bytes.decode(errors="replace") does.
TEST(Utf8, MaximalSubpartsAreReplaced) {
  const std::string r(kReplacementCharacter);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x80", r},
      {"\xC3", r},
      {"\xC3(", r + "("},
      {"\xE2\x82(", r + "("},
      {"\xF0\x9F\x98", r},
      {"\xF0\x82\x82\xAC", r + r + r + r},  // overlong
      {"\xED\xA0\x80", r + r + r},          // surrogate
      {"\xC0\xAF", r + r},                  // overlong '/'
      {"\xF4\x90\x80\x80", r + r + r + r},  // beyond U+10FFFF
      {"\xF5\x80", r + r},
      {"a\xFF"
       "b",
       "a" + r + "b"},
      {"\xE4\xB8\xAD\xE4\xB8", "\xE4\xB8\xAD" + r},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", r + "\xF0\x9F\x98\x80"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(to_valid_utf8(bytes), text);
}

TEST(Utf8, ResultDoesNotDependOnHowTheBytesArrive) {
  test::Random random("utf8 parts");
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int64_t n = random.between(0, 30); n > 0; --n) {
      // Mostly lead and continuation bytes, so that characters form.
      constexpr uint8_t kBytes[] = {0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0,
                                    0xE4, 0xED, 0xF0, 0xF4, 0xF5, 0x90, 0x8F};
      bytes += static_cast<char>(kBytes[random.between(0, std::size(kBytes) - 1)]);
    }
    std::string whole = to_valid_utf8(bytes);
    EXPECT_EQ(to_valid_utf8(whole), whole);
    Utf8Decoder decoder;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      size_t count = static_cast<size_t>(random.between(0, 4));
      decoder.append(std::string_view(bytes).substr(at, count), text);
      at += count;
      EXPECT_TRUE(whole.starts_with(text));
    }
    decoder.finish(text);
    EXPECT_EQ(text, whole);
  }
}

TEST(Utf8, CharacterClasses) {
  for (char32_t c : {0x9, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x200A, 0x2028, 0x202F, 0x3000}) {
    EXPECT_TRUE(is_white_space(c)) << static_cast<uint32_t>(c);
  }
  for (char32_t c : {0x180E, 0x200B, 0x2060, 0xFEFF, 0x1C + 0x24}) {
    EXPECT_FALSE(is_white_space(c)) << static_cast<uint32_t>(c);
  }
  // A letter, a mark, a digit, '_', a joiner, CJK extension I and Garay (Unicode 15.1 and 16).
  for (char32_t c : {0x61, 0x301, 0x663, 0x5F, 0x200D, 0x2EBF0, 0x10D50}) {
    EXPECT_TRUE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
  for (char32_t c : {0x2D, 0x20, 0xB2, 0x1F600}) {
    EXPECT_FALSE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace sluice
