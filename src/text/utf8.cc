#include "src/text/utf8.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "src/text/unicode_additions.h"

namespace sluice {

void Utf8Decoder::append(std::string_view bytes, std::string& text) {
  text.reserve(text.size() + bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    if (needed_ == 0) {  // runs of ASCII are most of most texts
      size_t run = i;
      while (run < bytes.size() && static_cast<uint8_t>(bytes[run]) < 0x80) ++run;
      text.append(bytes, i, run - i);
      i = run;
      if (i == bytes.size()) return;
    }
    add(static_cast<uint8_t>(bytes[i++]), text);
  }
}

void Utf8Decoder::add(uint8_t byte, std::string& text) {
  if (needed_ > 0 && (byte < low_ || byte > high_)) finish(text);
  if (needed_ == 0) {
    begin(byte, text);
    return;
  }
  held_[held_count_++] = static_cast<char>(byte);
  low_ = 0x80;
  high_ = 0xBF;
  if (--needed_ == 0) text.append(held_, static_cast<size_t>(held_count_));
}

// The second byte's bounds keep out overlong forms, surrogates and what lies beyond U+10FFFF.
void Utf8Decoder::begin(uint8_t byte, std::string& text) {
  if (byte < 0x80) {
    text += static_cast<char>(byte);
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    replaced_ = true;
    text += kReplacementCharacter;
    return;
  }
  held_[0] = static_cast<char>(byte);
  held_count_ = 1;
  needed_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
}

void Utf8Decoder::finish(std::string& text) {
  if (needed_ > 0) {
    replaced_ = true;
    text += kReplacementCharacter;
  }
  needed_ = 0;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  Utf8Decoder decoder;
  decoder.append(bytes, text);
  decoder.finish(text);
  return text;
}

Utf8Char utf8_char_at(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[at + i])); };
  char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

Utf8Char utf8_char_before(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return utf8_char_at(text, at);
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    points += c.code_point;
    at += static_cast<size_t>(c.bytes);
  }
  return points;
}

void append_utf8(char32_t code_point, std::string& text) {
  auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t character_count(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool is_white_space(char32_t code_point) {
  return u_hasBinaryProperty(static_cast<UChar32>(code_point), UCHAR_WHITE_SPACE);
}

bool is_word_character(char32_t code_point) {
  UChar32 c = static_cast<UChar32>(code_point);
  constexpr uint32_t kCategories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  if (u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
      (U_GET_GC_MASK(c) & kCategories) != 0) {
    return true;
  }
  return std::ranges::any_of(categories_after_unicode_14(), [&](const CategoryRange& range) {
    std::string_view category = range.category;
    bool in_word = category[0] == 'L' || category[0] == 'M' || category == "Nd";
    return in_word && code_point >= range.first && code_point <= range.last;
  });
}

}  // namespace sluice
