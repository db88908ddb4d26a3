// The writing systems of characters.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice {

// A script, as the pre_tokenizer type "UnicodeScripts" has it: Japanese is one; none for a space,
// and for what Unicode 9 does not know.
std::optional<int32_t> script_of(char32_t c);

}  // namespace sluice
