// Normalizers' maps of single characters, whatever stands around them. The sets are those of the
// library whose ids we reproduce, where several versions of Unicode meet.
#pragma once

#include <string>

namespace sluice {

// Appends what becomes of the character.
using CharacterMap = void (*)(char32_t c, std::string& text);

void lower_case(char32_t c, std::string& text);
// BERT's: no controls; every white space is a space.
void clean(char32_t c, std::string& text);
// BERT's: a space on both sides of ideographs.
void set_apart_ideographs(char32_t c, std::string& text);
// "StripAccents": no marks; BERT's: no nonspacing ones.
void strip_marks(char32_t c, std::string& text);
void strip_nonspacing_marks(char32_t c, std::string& text);
// "ByteLevel": its bytes in the byte alphabet.
void write_bytes(char32_t c, std::string& text);
// "Nmt": no controls, and a space for other white space.
void clean_nmt(char32_t c, std::string& text);

}  // namespace sluice
