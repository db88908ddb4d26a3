#include "src/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr int kCharacters = 0x144;  // code points that may stand for a byte, and some that do not

struct Alphabet {
  std::array<uint16_t, 256> character{};            // of each byte
  std::array<int16_t, kCharacters> byte_or_none{};  // of each character; -1: none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_or_none.fill(-1);
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    uint16_t character = printable ? static_cast<uint16_t>(b) : next++;
    alphabet.character[static_cast<size_t>(b)] = character;
    alphabet.byte_or_none[character] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

void append_byte_characters(std::string_view bytes, std::string& text) {
  for (char b : bytes) append_utf8(kAlphabet.character[static_cast<uint8_t>(b)], text);
}

void append_bytes_of_characters(std::string_view text, std::string& bytes) {
  size_t before = bytes.size();
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = utf8_char_at(text, at);
    int byte = c.code_point < kCharacters ? kAlphabet.byte_or_none[c.code_point] : -1;
    if (byte < 0) {
      bytes.resize(before);
      bytes += text;
      return;
    }
    bytes += static_cast<char>(byte);
    at += static_cast<size_t>(c.bytes);
  }
}

}  // namespace sluice
