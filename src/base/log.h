// Messages of Sluice to people: on stderr, one line each. Results go to stdout,
// elsewhere.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::log {

enum class Level : uint8_t { debug, info, warning, error, off };

// Process-wide, like stderr itself. Set once by the command line.
void set_level(Level level);
bool parse_level(std::string_view name,
                 Level& level);  // "debug", "info", "warning", "error", "off"
void write(Level level, const std::string& line);
// Writes the text to stderr as it is, for progress on a terminal, which moves the cursor. A failure
// to write is ignored.
void show(std::string_view text);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice::log
