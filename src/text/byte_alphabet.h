// GPT-2's printable stand-ins for bytes: a byte-level vocabulary is written with one character for
// each byte, U+0021..U+007E, U+00A1..U+00AC and U+00AE..U+00FF for themselves, U+0100..U+0143 for
// the 68 others in ascending order.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Appends one character for each byte of `bytes`.
void append_byte_characters(std::string_view bytes, std::string& text);
// Appends the bytes that valid UTF-8 `text` stands for; where it has a character that stands for no
// byte, `text` itself.
void append_bytes_of_characters(std::string_view text, std::string& bytes);

}  // namespace sluice
