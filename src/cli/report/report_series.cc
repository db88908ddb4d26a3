#include "src/cli/report/report_series.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice::cli {

uint64_t total_bytes(const BytesByUse& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

void each_memory_state(const MemoryReport& memory, Place place,
                       const std::function<void(double seconds, const BytesByUse&)>& at) {
  BytesByUse bytes{};
  for (const Ledger::Event& e : memory.timeline) {
    const Ledger::Account& account = memory.accounts[e.account];
    if (account.place != place) continue;
    bytes[static_cast<size_t>(account.use)] += static_cast<uint64_t>(e.delta);
    at(e.seconds, bytes);
  }
}

MemorySeries memory_series(const MemoryReport& memory, Place place, double end, size_t bins) {
  MemorySeries series;
  std::vector<MemoryStep>& steps = series.steps;
  size_t bin = std::numeric_limits<size_t>::max();
  size_t first = 0;  // the first step of the bin
  each_memory_state(memory, place, [&](double seconds, const BytesByUse& bytes) {
    for (size_t u = 0; u < kUses; ++u) series.peaks[u] = std::max(series.peaks[u], bytes[u]);
    if (total_bytes(bytes) > series.peak()) series.at_peak = bytes;
    double share = end > 0 ? std::min(seconds / end, 1.0) : 0;
    auto now = static_cast<size_t>(share * static_cast<double>(bins));
    if (now != bin) {
      bin = now;
      first = steps.size();
    }
    if (steps.size() - first < 2) {
      steps.push_back({seconds, bytes});
      return;
    }
    if (total_bytes(steps[first + 1].bytes) > total_bytes(steps[first].bytes))
      steps[first] = steps[first + 1];
    steps[first + 1] = {seconds, bytes};
  });
  return series;
}

std::vector<RateStep> disk_rates(std::span<const DiskSample> samples, double shortest) {
  std::vector<RateStep> steps;
  std::vector<uint64_t> bytes;  // of each step
  if (samples.empty()) return steps;
  constexpr double kTick = 1e-9;  // of less time there is no rate
  shortest = std::max(shortest, kTick);
  DiskSample begin = samples.front();
  for (const DiskSample& s : samples) {
    double seconds = s.seconds - begin.seconds;
    if (seconds < shortest) continue;
    steps.push_back({begin.seconds, s.seconds, 0});
    bytes.push_back(s.bytes - begin.bytes);
    begin = s;
  }
  // The rest at the end is too short for a step of its own.
  if (!steps.empty()) {
    steps.back().end = samples.back().seconds;
    bytes.back() += samples.back().bytes - begin.bytes;
  } else if (samples.back().seconds - begin.seconds >= kTick) {
    steps.push_back({begin.seconds, samples.back().seconds, 0});
    bytes.push_back(samples.back().bytes - begin.bytes);
  }
  for (size_t i = 0; i < steps.size(); ++i)
    steps[i].bytes_per_second = static_cast<double>(bytes[i]) / (steps[i].end - steps[i].begin);
  return steps;
}

}  // namespace sluice::cli
