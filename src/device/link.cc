#include "src/device/link.h"

#include <algorithm>
#include <chrono>

#include "src/base/check.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr uint64_t kBytes = 64 * MiB;
constexpr int kCopies = 8;

}  // namespace

double measure_link(Device& device, Ledger& ledger) {
  check(device.has_own_memory(), "a link leads to memory of its own");
  Buffer host(ledger, Use::workspace, "link", kBytes, Buffer::Touch::now);
  const std::unique_ptr<Pinned> pinned = device.pin(host.bytes());
  device.reserve(kBytes);
  Buffer there = device.memory(ledger, Use::workspace, "link", kBytes, Buffer::Touch::now);
  const std::unique_ptr<DeviceStream> stream = device.stream();
  stream->synchronize();
  double best = 0;
  for (int copy = 0; copy < kCopies; ++copy) {
    const auto start = std::chrono::steady_clock::now();
    stream->copy(there.data(), host.data(), kBytes);
    stream->synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kBytes) / std::max(elapsed.count(), 1e-9));
  }
  return best;
}

}  // namespace sluice
