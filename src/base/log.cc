#include "src/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdio>
#include <memory>

#include "src/base/error.h"

namespace sluice::log {
namespace {

struct Name {
  std::string_view name;
  spdlog::level::level_enum level;
};
constexpr std::array<Name, 5> kLevels{{{"debug", spdlog::level::debug},
                                       {"info", spdlog::level::info},
                                       {"warning", spdlog::level::warn},
                                       {"error", spdlog::level::err},
                                       {"off", spdlog::level::off}}};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("sluice",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(kLevels[static_cast<size_t>(level)].level); }

bool parse_level(std::string_view name, Level& level) {
  for (size_t i = 0; i < kLevels.size(); ++i) {
    if (kLevels[i].name == name) {
      level = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

void write(Level level, const std::string& line) {
  std::string_view prefix = level == Level::warning ? "warning: "
                            : level == Level::error ? "error: "
                                                    : "";
  // Summaries have several lines.
  logger().log(kLevels[static_cast<size_t>(level)].level, "{}{}", prefix,
               level == Level::warning ? one_line(line) : lines_for_terminal(line));
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace sluice::log
