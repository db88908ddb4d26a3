// Memory's read bandwidth on this machine: the yardstick of `sluice bench decode`.
#pragma once

#include <cstddef>
#include <span>
#include <stop_token>
#include <vector>

#include "src/base/thread_pool.h"

namespace sluice {

// Bytes a second that all threads of the pool read from `memory` together, in a pass of each read
// kernel that this machine has (cpu::ReadWay). Memory should be well above the caches, written
// once, and on huge pages.
std::vector<double> read_rates(std::span<const std::byte> memory, ThreadPool& pool);

// The best of several passes; of fewer, once a stop is requested.
double read_bandwidth(std::span<const std::byte> memory, ThreadPool& pool,
                      const std::stop_token& stop = {});

}  // namespace sluice
