// A report's timelines as curves: memory by use at every moment, and the disk's rate.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/cli/report/report_data.h"
#include "src/memory/ledger.h"

namespace sluice::cli {

using BytesByUse = std::array<uint64_t, kUses>;
uint64_t total_bytes(const BytesByUse& bytes);

// Calls `at` after every event of `place`, in the order of time.
void each_memory_state(const MemoryReport& memory, Place place,
                       const std::function<void(double seconds, const BytesByUse&)>& at);

// Holds from `seconds` until the next step.
struct MemoryStep {
  double seconds = 0;
  BytesByUse bytes{};
};

struct MemorySeries {
  std::vector<MemoryStep> steps;
  BytesByUse peaks{};    // of each use, whenever it was
  BytesByUse at_peak{};  // when the sum was largest, the first time
  uint64_t peak() const { return total_bytes(at_peak); }
};

// At most two steps for each of `bins` equal parts of [0, end]: the last and the largest before it,
// so that a timeline of any length makes a curve of bounded length with the same peak.
MemorySeries memory_series(const MemoryReport& memory, Place place, double end, size_t bins);

// The mean rate from `begin` to `end`.
struct RateStep {
  double begin = 0;
  double end = 0;
  double bytes_per_second = 0;
};

// Without gaps from the first sample to the last; a step takes in as many samples as it needs to
// last `shortest` (the last one at least one sample, and what is left).
std::vector<RateStep> disk_rates(std::span<const DiskSample> samples, double shortest);

}  // namespace sluice::cli
