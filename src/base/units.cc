#include "src/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "src/base/error.h"

namespace sluice {

namespace {

constexpr double kMostBytes = 1152921504606846976.0;  // 1 EiB: sums of sizes have room in 64 bits

// 0: not a unit.
double unit_bytes(std::string_view unit) {
  static constexpr std::array<std::pair<std::string_view, double>, 14> kUnits{
      {{"", 1},
       {"B", 1},
       {"KiB", 1024.0},
       {"MiB", 1048576.0},
       {"GiB", 1073741824.0},
       {"TiB", 1099511627776.0},
       {"PiB", 1125899906842624.0},
       {"EiB", kMostBytes},
       {"KB", 1e3},
       {"MB", 1e6},
       {"GB", 1e9},
       {"TB", 1e12},
       {"PB", 1e15},
       {"EB", 1e18}}};
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name) return bytes;
  }
  return 0;
}

}  // namespace

uint64_t parse_size(std::string_view option, std::string_view text, std::optional<uint64_t> whole) {
  double number = 0;
  auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  bool share = whole && unit == "%";
  bool too_large = status == std::errc::result_out_of_range;
  if ((status != std::errc{} && !too_large) || (!std::isfinite(number) && !too_large) ||
      (!share && unit_bytes(unit) == 0)) {
    fail(ErrorKind::usage, "{} {}: not a size; write 6GiB, 512MiB or a number of bytes{}", option,
         text, whole ? ", or a share such as 75%" : "");
  }
  if (share && !(number >= 0 && number <= 100))
    fail(ErrorKind::usage, "{} {}: out of range; a share is from 0% to 100%", option, text);
  double bytes = number * (share ? static_cast<double>(*whole) / 100 : unit_bytes(unit));
  if (too_large || !(bytes >= 0 && bytes <= kMostBytes))
    fail(ErrorKind::usage, "{} {}: out of range; a size is from 0 to 1EiB", option, text);
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
