#include "src/hub/retry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "src/base/error.h"

namespace sluice {

void fail_interrupted() {
  fail(ErrorKind::runtime, "interrupted; run the same command again to continue");
}

void wait_for(std::chrono::seconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, time, [] { return false; });
  if (stop.stop_requested()) fail_interrupted();
}

std::chrono::seconds pause_before(int tries, int64_t retry_after) {
  constexpr int64_t kMost = 60;
  return std::chrono::seconds(
      std::clamp<int64_t>(retry_after >= 0 ? retry_after : int64_t{1} << (tries - 1), 0, kMost));
}

std::string fault_of(const HttpResult& result) {
  // The body of such an answer is not read, which the library calls a fault of its own.
  const bool refused = result.status >= 400;
  return result.fault.empty() || refused ? fmt::format("status {}", result.status) : result.fault;
}

}  // namespace sluice
