// Shows long work on stderr while it runs: a bar on a terminal, no wider than that, a line now and
// then elsewhere.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "src/load/streamer.h"

namespace sluice::cli {

// The counts of some work, which outlive the display.
struct ProgressCounts {
  const char* work;  // "loading"
  const std::atomic<uint64_t>& bytes_done;
  const std::atomic<uint64_t>& bytes_total;
  std::string parts = {};  // "unit": of which there are units_total; empty: of none
  const std::atomic<uint32_t>* parts_done = nullptr;
  const std::atomic<uint32_t>* parts_total = nullptr;
};
ProgressCounts counts_of(const LoadProgress& progress);

// One line of at most `columns`: what comes last has no room first.
std::string progress_line(const ProgressCounts& counts, double seconds, size_t columns, bool bar);

class ProgressDisplay {
 public:
  // Shows nothing when `quiet`.
  ProgressDisplay(ProgressCounts counts, bool quiet);
  ~ProgressDisplay();

 private:
  void show();

  ProgressCounts counts_;
  bool terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli
