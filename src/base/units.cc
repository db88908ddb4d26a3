#include "src/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace sluice {

std::optional<uint64_t> parse_size(std::string_view text, uint64_t whole) {
  double number = 0;
  auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{
      {{"", 1},
       {"B", 1},
       {"KiB", 1024.0},
       {"MiB", 1048576.0},
       {"GiB", 1073741824.0},
       {"TiB", 1099511627776.0},
       {"KB", 1e3},
       {"MB", 1e6},
       {"GB", 1e9},
       {"TB", 1e12}}};
  double factor = unit == "%" ? static_cast<double>(whole) / 100 : 0;
  if (unit == "%" && number > 100) return std::nullopt;
  for (const auto& [name, value] : kUnits) {
    if (unit == name) factor = value;
  }
  if (factor == 0 && unit != "%") return std::nullopt;
  double bytes = number * factor;
  if (bytes >= 9.2e18) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) {
  if (bytes < KiB) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 999.5) break;
    value /= 1024;
    unit = next;
  }
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

}  // namespace sluice
