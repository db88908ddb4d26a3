// Rates of this machine, measured by `sluice bench disk` and observed by loads and runs, and
// remembered from run to run. Predictions of a plan follow from them.
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

// Rates that loads and steps reach.
struct Rates {
  Rate disk{1.4e9};    // by a load, of the device that holds the checkpoint
  Rate sweep{1.4e9};   // by a pass over streamed weights, beside what memory takes for it
  Rate memory{17e9};   // by a step, of all weights that a token meets
  Rate link{12e9};     // from host memory to a device
  Rate host{17e9};     // of host memory beside a device, by the CPU's products
  Rate ranks{1.2e9};   // from one rank to the others
  Rate messages{2e4};  // of few bytes, one after another, between ranks [1/s]
};

// The keys under which rates are remembered.
struct RateKeys {
  std::string disk;           // disk_key()
  std::string weights;        // their stored type and scheme
  std::string processor;      // the kernels, and how many threads
  std::string device;         // DeviceInfo::name of where the link leads
  double memory_rate = 0;     // DeviceInfo::memory_rate
  bool several_hosts = true;  // that ranks are on
};
// The key of the disk that holds `path`.
std::string disk_key(const std::filesystem::path& path);

// `memory` is a bare rate from any source; `step` is the rate that decode steps reach, in one
// format and on one processor.
// `host` is that of the CPU beside a device. `ranks` and `messages` are of several hosts, else of
// this one.
enum class RateKind : uint8_t { disk, sweep, memory, step, link, host, ranks, messages };

struct Observation {
  RateKind kind = RateKind::disk;
  double bytes_per_second = 0;
  RateSource source = RateSource::runs;
};

// $XDG_CACHE_HOME/sluice/rates.json, or ~/.cache/sluice/rates.json; empty when there is neither.
std::filesystem::path rates_file();

// Returns for each kind the upper quartile of the last eight observations, so that outliers do not
// count and a changed disk is believed after six. A rate without observations follows from the
// nearest that has some. A missing or damaged file counts as no observations.
Rates remembered_rates(const std::filesystem::path& file, const RateKeys& keys);
// Returns whether the file has an observation of that kind.
bool has_rate(const std::filesystem::path& file, const RateKeys& keys, RateKind kind);

// Adds observations to those in the file, and replaces it as a whole. Returns false when it cannot
// be written.
bool remember_rates(const std::filesystem::path& file, const RateKeys& keys,
                    std::span<const Observation> observations);

// The read shape of a disk, from loads that have tried shapes in turn or from `bench disk`.
struct RememberedShape {
  io::ReadShape shape;
  RateSource source = RateSource::assumed;
  int loads = 0;  // loads that have tried shapes
  // Returns whether no further load needs to try shapes. Until then, a load needs room to try.
  bool is_settled() const { return loads >= 3; }
};
// The shape that most of the last three loads found; the last one's where they differ.
RememberedShape remembered_shape(const std::filesystem::path& file, const RateKeys& keys);
// Remembers a shape, as remember_rates() does rates.
bool remember_shape(const std::filesystem::path& file, const RateKeys& keys,
                    const io::ReadShape& shape, RateSource source);
// Forgets the shape of a disk that was replaced.
bool forget_shape(const std::filesystem::path& file, const RateKeys& keys);

// The uses of a checkpoint's experts by its latest run, by a key of the checkpoint; nothing where
// there was none, or what is there cannot be true. The checkpoints that were remembered last are
// kept.
std::string checkpoint_key(const std::filesystem::path& model);
ExpertReuse remembered_reuse(const std::filesystem::path& file, const std::string& checkpoint);
bool remember_reuse(const std::filesystem::path& file, const std::string& checkpoint,
                    const ExpertReuse& seen);

// Sequences whose arithmetic takes a CPU as long as memory takes for the weights, about
// (docs/benchmarks.md).
inline constexpr double kSequencesForFree = 16;

// Transfers of fewer bytes measure caches and overheads, not a disk or memory.
inline constexpr uint64_t kSustainedBytes = 128 << 20;

// Bytes that one pass over the weights moves.
struct PassBytes {
  uint64_t disk = 0;      // read anew
  uint64_t link = 0;      // copied from host memory to the device
  uint64_t host = 0;      // multiplied by the CPU beside the device
  uint64_t memory = 0;    // all that a token meets
  double disk_share = 1;  // BufferSizes::disk_share
};
double pass_seconds(const PassBytes& bytes, const Rates& rates);
// The rate of the slowest resource of a pass of `seconds`; the others count with `rates`. None
// where the pass is too small.
std::optional<Observation> observe_pass(const PassBytes& bytes, double seconds, const Rates& rates);

double predict_load_seconds(const ReadPlan& read, const Rates& rates);

// Tokens a second of all sequences together, after their prompts. The disk delivers the weights of
// a sweep, the link those in host memory beside a device, and memory all weights that a token
// meets. The disk reads ahead during compute, but a step takes about as long as the sum
// (docs/benchmarks.md). Sequences in one step share the costs, until their arithmetic takes longer
// than memory; the experts that any of them chooses count once.
double predict_speed(const MemoryPlan& memory, const ReadPlan& read, const Rates& rates,
                     int64_t sequences = 1);

// Seconds to move a block of the KV cache of `bytes`, and to recompute its tokens beside other
// rows, for which the weights are read in any case.
BlockCosts predict_block_costs(uint64_t bytes, int64_t block_size, const ReadPlan& read,
                               const Rates& rates);

}  // namespace sluice
