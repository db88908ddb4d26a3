#include "kernels/cpu/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/units.h"

namespace sluice {

double peak_operations(Isa isa, Compute compute, DType weights, ThreadPool& pool) {
  constexpr int kRuns = 5;
  constexpr int64_t kRounds = 1 << 20;
  const InstructionSet& set = find_instruction_set(isa);
  if (set.ops == nullptr) return 0;
  const cpu::Units kind = input_units(*set.ops, compute, weights);
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<int64_t> operations{0};
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(pool.size(), 1, [&](int64_t, int64_t, int) {
      volatile uint64_t keep = 0;
      uint64_t seen = keep;
      operations += set.ops->multiply_add(kind, kRounds, &seen);
      keep = seen;
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(operations) / elapsed.count());
  }
  return best;
}

}  // namespace sluice
