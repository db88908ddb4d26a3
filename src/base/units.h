// Sizes as people write and read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr uint64_t KiB = 1024;
inline constexpr uint64_t MiB = 1024 * KiB;
inline constexpr uint64_t GiB = 1024 * MiB;

// "6GiB", "6G", "512m" (2^20), "1.5GB" (10^9), "1073741824", and where there is a `whole`, "75%" of
// it. Throws Error(usage) that names `option` for what is not a size, or is out of the range of
// one.
uint64_t parse_size(std::string_view option, std::string_view text,
                    std::optional<uint64_t> whole = std::nullopt);
// "5.98 GiB", "512 MiB", "17 B": three significant digits.
std::string format_size(uint64_t bytes);
// format_size(needed), but rounded up where it would read as fitting a limit that it exceeds.
std::string format_need(uint64_t needed, uint64_t limit);

// Smallest multiple of `unit` that is not below `value`.
constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
constexpr uint64_t round_down(uint64_t value, uint64_t unit) { return value / unit * unit; }
constexpr int64_t ceil_div(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
constexpr int64_t round_to(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

}  // namespace sluice
