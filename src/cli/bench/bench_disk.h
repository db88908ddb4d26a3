// sluice bench disk: rates of the disk, of memory, and of the link to a GPU.
#pragma once

#include <CLI/CLI.hpp>
#include <stop_token>

#include "src/base/thread_pool.h"
#include "src/base/units.h"
#include "src/memory/ledger.h"

namespace sluice::cli {

void define_bench_disk(CLI::App& bench, std::stop_token stop);

// The best rate at which this machine's threads read memory, from a buffer far larger than its
// caches.
inline constexpr uint64_t kBandwidthBuffer = 512 * MiB;
double measured_read_bandwidth(Ledger& ledger, ThreadPool& pool, const std::stop_token& stop);

}  // namespace sluice::cli
