// Texts as numbers, as int() and float() read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::jinja {

std::optional<int64_t> read_integer(std::string_view text, int base);  // Fault beyond 64 bits
std::optional<double> read_real(std::string_view text);

}  // namespace sluice::jinja
