// Base64 (RFC 4648, section 4), in which vocabularies write bytes. No library here reads it without
// padding, or has it as a public interface (Boost.Beast).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// nullopt: not in base64. Padding may be missing.
std::optional<std::string> decode_base64(std::string_view text);
// Returns the text with padding.
std::string encode_base64(std::string_view bytes);

}  // namespace sluice
