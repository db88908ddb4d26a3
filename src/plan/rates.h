// How fast this machine is: what `sluice bench disk` measured and what loads and runs have seen,
// remembered from run to run. What a plan predicts follows from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/read_shape.h"
#include "src/kv/block_manager.h"
#include "src/plan/memory_plan.h"
#include "src/plan/read_plan.h"

namespace sluice {

enum class RateSource : uint8_t { assumed, bench, runs };
std::string_view rate_source_name(RateSource source);

struct Rate {
  double bytes_per_second = 0;
  RateSource source = RateSource::assumed;
};

// As loads and steps reach them.
struct Rates {
  Rate disk{1.4e9};   // by a load, of the device that holds the checkpoint
  Rate sweep{1.4e9};  // by a pass over streamed weights, beside what memory takes for it
  Rate memory{17e9};  // by a step, of all weights that a token meets
  Rate link{12e9};    // from host memory to a device
};

// What rates belong to.
struct RateKeys {
  std::string disk;        // disk_key()
  std::string weights;     // how they are stored, and the scheme
  std::string processor;   // the kernels, and how many threads
  std::string device;      // DeviceInfo::name of where the link leads
  double memory_rate = 0;  // DeviceInfo::memory_rate
};
// Of the disk that holds `path`.
std::string disk_key(const std::filesystem::path& path);

// `memory` is a bare rate whatever its source; `step` what decode steps reach of it, in one format
// and on one processor.
enum class RateKind : uint8_t { disk, sweep, memory, step, link };

struct Observation {
  RateKind kind = RateKind::disk;
  double bytes_per_second = 0;
  RateSource source = RateSource::runs;
};

// $XDG_CACHE_HOME/sluice/rates.json, or ~/.cache/sluice/rates.json; empty when there is neither.
std::filesystem::path rates_file();

// Of each kind the upper quartile of the last eight observations: neither a busy moment nor a lucky
// one counts, and a disk that has changed is believed after six. What was not seen follows from
// the nearest that was. A file that is missing or damaged is as if nothing had been observed.
Rates remembered_rates(const std::filesystem::path& file, const RateKeys& keys);
// Whether there is an observation of that kind.
bool has_rate(const std::filesystem::path& file, const RateKeys& keys, RateKind kind);

// Adds observations to those that the file has by now, and replaces it as a whole. False when it
// cannot be written.
bool remember_rates(const std::filesystem::path& file, const RateKeys& keys,
                    std::span<const Observation> observations);

// How a disk is to be asked, by loads that have tried some shapes in turn or by `bench disk`.
struct RememberedShape {
  io::ReadShape shape;
  RateSource source = RateSource::assumed;
  int loads = 0;  // that have tried
  // So many agree that none need try again. Before, a load needs room to try.
  bool is_settled() const { return loads >= 3; }
};
// The shape that most of the last three said, the later one where none did.
RememberedShape remembered_shape(const std::filesystem::path& file, const RateKeys& keys);
// As remember_rates().
bool remember_shape(const std::filesystem::path& file, const RateKeys& keys,
                    const io::ReadShape& shape, RateSource source);
// Of a disk that has become another: nothing is known of its shape any more.
bool forget_shape(const std::filesystem::path& file, const RateKeys& keys);

// Less than so many bytes say more of caches and overheads than of a disk or memory.
inline constexpr uint64_t kSustainedBytes = 128 << 20;

// What one pass over the weights moves.
struct PassBytes {
  uint64_t disk = 0;      // read anew
  uint64_t link = 0;      // copied from host memory to the device
  uint64_t memory = 0;    // all that a token meets
  double disk_share = 1;  // Effort::disk_share
};
double pass_seconds(const PassBytes& bytes, const Rates& rates);
// What a pass of `seconds` says of the slowest that it needs; the rest took as long as `rates` say.
// None where it is too small to say anything.
std::optional<Observation> observe_pass(const PassBytes& bytes, double seconds, const Rates& rates);

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
