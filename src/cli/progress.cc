#include "src/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/base/units.h"
#include "src/memory/system.h"

namespace sluice::cli {
namespace {

constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(5);
constexpr int kBarWidth = 24;

std::string state(const LoadProgress& p, double seconds) {
  auto done = static_cast<double>(p.bytes_done.load());
  auto total = static_cast<double>(std::max<uint64_t>(p.bytes_total.load(), 1));
  double rate = seconds > 0 ? done / seconds : 0;
  std::string left = rate > 0 ? fmt::format("{:.0f} s left", (total - done) / rate) : "";
  return fmt::format("{:3.0f} %  {} of {}  {:.2f} GiB/s  unit {}/{}  memory {}  {}",
                     100 * done / total, format_size(p.bytes_done), format_size(p.bytes_total),
                     rate / static_cast<double>(GiB), p.units_done.load(), p.units_total.load(),
                     format_size(process_rss()), left);
}

std::string bar(const LoadProgress& p) {
  uint64_t total = std::max<uint64_t>(p.bytes_total.load(), 1);
  auto filled = static_cast<size_t>(p.bytes_done.load() * kBarWidth / total);
  return std::string(filled, '#') + std::string(kBarWidth - filled, '.');
}

}  // namespace

ProgressDisplay::ProgressDisplay(const LoadProgress& progress, bool quiet)
    : progress_(progress), terminal_(isatty(STDERR_FILENO) != 0) {
  if (!quiet) thread_ = start_thread({"showing progress"}, [this] { show(); });
}

ProgressDisplay::~ProgressDisplay() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProgressDisplay::show() {
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::unique_lock lock(mutex_);
  while (!done_) {
    if (terminal_) {
      wake_.wait_for(lock, kTerminalInterval, [&] { return done_; });
      log::show(
          fmt::format("\r\033[Kloading [{}] {}", bar(progress_), state(progress_, elapsed())));
    } else {
      wake_.wait_for(lock, kPlainInterval, [&] { return done_; });
      if (!done_) log::show(fmt::format("loading {}\n", state(progress_, elapsed())));
    }
  }
  if (terminal_) log::show("\n");
}

}  // namespace sluice::cli
