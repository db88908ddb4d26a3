#include "src/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/base/units.h"
#include "src/cli/chat/word_wrap.h"
#include "src/memory/system.h"

namespace sluice::cli {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval = std::chrono::milliseconds(100);
constexpr std::chrono::milliseconds kPlainInterval = std::chrono::seconds(5);
constexpr size_t kBarWidth = 24;
constexpr size_t kPlainColumns = 200;

// "1:05" or "2:01:05".
std::string duration_text(double seconds) {
  constexpr double kMost = 360'000;
  const auto whole = static_cast<int64_t>(std::min(seconds, kMost));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressCounts counts_of(const LoadProgress& p) {
  return {"loading", p.bytes_done, p.bytes_total, "unit", &p.units_done, &p.units_total};
}

std::string progress_line(const ProgressCounts& counts, double seconds, size_t columns, bool bar) {
  if (counts.bytes_total.load() == 0) return counts.work;  // nothing is known yet
  const uint64_t total = counts.bytes_total.load();
  const uint64_t done = std::min(counts.bytes_done.load(), total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::vector<std::string> words{counts.work};
  const auto filled = static_cast<size_t>(share * kBarWidth);
  if (bar && columns >= 2 * kBarWidth)
    words.push_back("[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "]");
  words.push_back(fmt::format("{:3.0f} %", 100 * share));
  words.push_back(fmt::format("{} of {}", format_size(done), format_size(total)));
  words.push_back(format_size(static_cast<uint64_t>(rate)) + "/s");
  if (rate > 0) words.push_back(duration_text(static_cast<double>(total - done) / rate) + " left");
  if (counts.parts_total != nullptr)
    words.push_back(fmt::format("{} {}/{}", counts.parts, counts.parts_done->load(),
                                counts.parts_total->load()));
  words.push_back("memory " + format_size(process_rss()));
  std::string line;
  for (const std::string& word : words) {
    const size_t gap = line.empty() ? 0 : 1 + (line.back() != ']' && line != counts.work);
    if (line.size() + gap + word.size() > columns) break;
    line += std::string(gap, ' ') + word;
  }
  return line;
}

ProgressDisplay::ProgressDisplay(ProgressCounts counts, bool quiet)
    : counts_(std::move(counts)), terminal_(isatty(STDERR_FILENO) != 0) {
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
    wake_.wait_for(lock, terminal_ ? kTerminalInterval : kPlainInterval, [&] { return done_; });
    if (done_) break;
    // A row that is full to its last column would begin the next.
    const size_t columns = terminal_ ? terminal_columns(STDERR_FILENO) - 1 : kPlainColumns;
    const std::string line = progress_line(counts_, elapsed(), columns, terminal_);
    log::show(terminal_ ? "\r\033[K" + line : line + "\n");
  }
  if (terminal_) log::show("\r\033[K");
}

}  // namespace sluice::cli
