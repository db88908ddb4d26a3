#include "src/base/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "src/base/error.h"

namespace sluice {

namespace {

constexpr double kMostBytes = 1152921504606846976.0;  // 1 EiB: sums of sizes have room in 64 bits

// In upper or lower case: G and GiB are 2^30, as for systemd and Docker, GB is 10^9. 0: not a unit.
double unit_bytes(std::string_view unit) {
  static constexpr std::string_view kPrefixes = "kmgtpe";
  std::string name(unit);
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (name.empty() || name == "b") return 1;
  const size_t prefix = kPrefixes.find(name[0]);
  if (prefix == std::string_view::npos) return 0;
  const auto power = static_cast<double>(prefix + 1);
  name.erase(0, 1);
  if (name.empty() || name == "i" || name == "ib") return std::pow(1024.0, power);
  return name == "b" ? std::pow(1000.0, power) : 0;
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
    fail(ErrorKind::usage, "{} {}: not a size; write 6GiB, 512M or a number of bytes{}", option,
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

std::string format_need(uint64_t needed, uint64_t limit) {
  const std::string text = format_size(needed);
  if (needed <= limit || text != format_size(limit)) return text;
  uint64_t more = needed;  // a step of three digits is at most a 100th
  for (uint64_t step = 1; format_size(more) == text; step *= 2) more = needed + step;
  return format_size(more);
}

}  // namespace sluice
