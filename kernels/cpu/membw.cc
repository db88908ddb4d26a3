#include "kernels/cpu/membw.h"

#include <algorithm>
#include <chrono>

#include "kernels/cpu/instruction_sets.h"

namespace sluice {
namespace {

constexpr int64_t kChunk = 1 << 20;  // bytes that a thread reads at a time
constexpr cpu::ReadWay kReadWays[] = {cpu::ReadWay::plain, cpu::ReadWay::into_l1,
                                      cpu::ReadWay::four_into_l1, cpu::ReadWay::four_into_l2};

double seconds_of_pass(const cpu::Ops& ops, cpu::ReadWay way, std::span<const std::byte> memory,
                       ThreadPool& pool) {
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(static_cast<int64_t>(memory.size()), kChunk,
                    [&](int64_t begin, int64_t end, int) {
                      volatile uint64_t seen = ops.read(memory.data() + begin, end - begin, way);
                      (void)seen;
                    });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

}  // namespace

std::vector<double> read_rates(std::span<const std::byte> memory, ThreadPool& pool) {
  memory = memory.first(memory.size() / kChunk * kChunk);
  check(!memory.empty(), "at least a chunk of memory to read");
  std::vector<double> rates;
  for (const InstructionSet& set : instruction_sets()) {
    if (set.ops == nullptr || !set.supported()) continue;
    for (cpu::ReadWay way : kReadWays) {
      const double seconds = seconds_of_pass(*set.ops, way, memory, pool);
      rates.push_back(static_cast<double>(memory.size()) / seconds);
    }
  }
  return rates;
}

double read_bandwidth(std::span<const std::byte> memory, ThreadPool& pool,
                      const std::stop_token& stop) {
  constexpr int kPasses = 4;
  double best = 0;
  for (int pass = 0; pass < kPasses && !stop.stop_requested(); ++pass)
    best = std::max(best, std::ranges::max(read_rates(memory, pool)));
  return best;
}

}  // namespace sluice
