// UTF-8 from outside (lossy) and from inside (known to be valid).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Turns bytes that arrive in parts into valid UTF-8. Each maximal subpart of an ill-formed sequence
// becomes one U+FFFD (Unicode 15, section 3.9, table 3-8).
class Utf8Decoder {
 public:
  // Appends to `text` the characters that `bytes` complete. The first bytes of a character that is
  // not complete yet are kept for the next call.
  void append(std::string_view bytes, std::string& text);
  // True while a character has begun and not ended.
  bool incomplete() const { return needed_ > 0; }
  // Returns whether any of the bytes were not UTF-8.
  bool replaced() const { return replaced_; }
  // The bytes end here: an incomplete character becomes U+FFFD.
  void finish(std::string& text);

 private:
  void add(uint8_t byte, std::string& text);
  void begin(uint8_t byte, std::string& text);

  char held_[4] = {};   // the bytes of the character that has begun
  int held_count_ = 0;  // how many of them there are
  int needed_ = 0;      // continuation bytes still to come
  uint8_t low_ = 0x80;  // bounds of the next continuation byte
  uint8_t high_ = 0xBF;
  bool replaced_ = false;
};

std::string to_valid_utf8(std::string_view bytes);
// Characters of valid UTF-8.
size_t character_count(std::string_view text);

// One character of valid UTF-8.
struct Utf8Char {
  char32_t code_point;
  int bytes;
};

// The character that begins at `at`, or ends before `at`, in valid UTF-8 that has one there.
Utf8Char utf8_char_at(std::string_view text, size_t at);
Utf8Char utf8_char_before(std::string_view text, size_t at);
std::u32string code_points(std::string_view text);
void append_utf8(char32_t code_point, std::string& text);

// Unicode's White_Space property.
bool is_white_space(char32_t code_point);
// A character of a word (Unicode Technical Standard 18, \w): letters, marks, decimal digits,
// connector punctuation, joiners.
bool is_word_character(char32_t code_point);

}  // namespace sluice
