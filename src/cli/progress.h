// Shows a load on stderr while it runs: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/load/streamer.h"

namespace sluice::cli {

class ProgressDisplay {
 public:
  // Shows nothing when `quiet`. `progress` outlives the display, which ends with a last state of
  // it.
  ProgressDisplay(const LoadProgress& progress, bool quiet);
  ~ProgressDisplay();

 private:
  void show();

  const LoadProgress& progress_;
  bool terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli
