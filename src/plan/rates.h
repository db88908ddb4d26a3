// How fast this machine is, as it was measured and remembered; what a plan predicts follows from
// it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/kv/block_manager.h"
#include "src/plan/memory_plan.h"
#include "src/plan/read_plan.h"

namespace sluice {

struct Rates {
  double disk = 1.5e9;         // bytes/s of the device that holds the checkpoint
  double memory = 20e9;        // bytes/s that all threads read
  double link = 12e9;          // bytes/s from host memory to a device
  bool disk_measured = false;  // otherwise assumed
  bool memory_measured = false;
  bool link_measured = false;
};

// What was measured.
struct MeasuredRates {
  std::optional<double> disk = {}, memory = {}, link = {};
  std::string device = {};  // DeviceInfo::name of where the link leads
};

// $XDG_CACHE_HOME/sluice/rates.json, or ~/.cache/sluice/rates.json; empty when there is neither.
std::filesystem::path rates_file();

// What is remembered for the disk that holds `model` and the link to `device`; a file that is
// missing or damaged is as if nothing had been measured.
Rates remembered_rates(const std::filesystem::path& file, const std::filesystem::path& model,
                       const std::string& device = "");

// Keeps what is given, beside what is known of other disks and devices. The file is replaced as a
// whole. False when it cannot be written.
bool remember_rates(const std::filesystem::path& file, const std::filesystem::path& model,
                    const MeasuredRates& rates);

struct Prediction {
  double load_seconds = 0;
  double tokens_per_second = 0;  // of all sequences together, after their prompts
};
// The disk gives the weights of a sweep, the link those that stay in host memory beside a device,
// memory all weights that a token meets. The disk reads ahead while compute is at something, but a
// step takes about as long as both together (docs/benchmarks.md). Sequences in one step share both,
// until their arithmetic takes longer than memory.
Prediction predict_speed(const MemoryPlan& memory, const ReadPlan& read, const Rates& rates,
                         int64_t sequences = 1);

// What it costs to move a block of the KV cache, `bytes` long, and to compute its tokens again
// beside others, whose weights are read in any case.
BlockCosts predict_block_costs(uint64_t bytes, int64_t block_size, const ReadPlan& read,
                               const Rates& rates);

}  // namespace sluice
