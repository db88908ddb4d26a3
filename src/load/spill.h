// The spill cache: weights that were quantized online, kept on disk in their small packed form, so
// that later passes and later starts read that instead of the checkpoint.
//
// A file holds everything of one checkpoint under one scheme that is quantized
// (plan/spill_layout.h), whatever stays in memory. It is filled while the first load and the first
// pass encode the tensors, appears under its name when it is complete, and is not changed
// afterwards. What is read from it is compared with its checksums each time: what is damaged is
// never used, and the checkpoint takes its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/file.h"
#include "io/new_file.h"
#include "quant/encode.h"
#include "src/base/error.h"
#include "src/memory/buffer.h"
#include "src/memory/ledger.h"
#include "src/plan/spill_layout.h"

namespace sluice {

struct SpillOptions {
  // Each holds a copy, so that all their disks are read from at once; none: no spill.
  std::vector<std::filesystem::path> directories;
  std::optional<std::string> limit;  // of all files in one: "20GiB", "50%" of what is free
  bool verify = false;               // compare what is there with the checkpoint before it is used
};

// What makes the weights in a file the right ones.
struct SpillKey {
  std::filesystem::path model;  // the checkpoint's directory, canonical
  std::string scheme;
  Rank rank;
};

// Codes that were read are not those that were written.
struct SpillDamaged : Error {
  explicit SpillDamaged(const std::string& tensor)
      : Error(ErrorKind::runtime, fmt::format("its copy of {} is damaged", tensor)) {}
};

class Spill {
 public:
  enum class State : uint8_t {
    off,        // no file: there is no room, another process is filling it, it was damaged, ...
    filling,    // tensors are added as they are encoded
    verifying,  // as they are encoded they are compared with what is there
    ready,      // tensors can be read
  };

  // Finds the file that an earlier run left, or begins a new one. Never fails for what is wrong
  // with the cache: says so in a warning, and is off. All arguments but `key` outlive it.
  Spill(const ReadPlan& plan, const io::CheckpointIndex& index, const SpillKey& key,
        const SpillOptions& options, Ledger& ledger,
        const io::SystemCalls& calls = io::system_calls());

  State state() const { return state_.load(std::memory_order_acquire); }
  bool ready() const { return state() == State::ready; }
  // Whether a tensor can be read from the file; whether it is to be given to add().
  bool has(uint32_t tensor) const { return ready() && layout_.find(tensor) != nullptr; }
  bool wants(uint32_t tensor) const;
  const SpillLayout& layout() const { return layout_; }

  // What a reader opens, any of them; none unless it is ready. Any thread.
  std::vector<io::CheckpointFile> files() const;

  // The weight that the codes of a move's rows are, which begin a panel; the scales are the
  // index's. SpillDamaged where the codes are not what the index says.
  Weight weight(const Move& move, std::span<const std::byte> codes) const;
  EncodeStats stats(uint32_t tensor) const;  // of when it was encoded
  float amax(uint32_t tensor) const;

  // What became of the rows of a move.
  struct Rows {
    Weight encoded;     // a tile, or a whole parameter
    int64_t first = 0;  // where in it they begin
    EncodeStats stats;
    float amax = 0;  // of their tensor, where that has one scale
  };
  // The rows of a tensor that is wanted; `scratch`, aligned for O_DIRECT, is written from. Any
  // thread. Makes the spill ready once all are there, or off if that fails.
  void add(const Move& move, const Rows& rows, std::span<std::byte> scratch);

  // Not to be used any more by this process. `damaged`: by no other either; removes the files. Any
  // thread.
  void stop_using(const std::string& reason, bool damaged);
  // The same of one copy, which cannot be read; the others do.
  void stop_using_copy(const std::filesystem::path& copy, const std::string& reason);

  struct Report {
    std::vector<std::filesystem::path> paths;
    std::string outcome;   // "reused", "written", "verified", or why there is none
    uint64_t bytes = 0;    // of a copy
    uint64_t written = 0;  // of all copies together
  };
  Report report() const;

 private:
  using FreshCopy = std::pair<std::filesystem::path, std::shared_ptr<io::NewFile>>;
  // In the index, for each tensor; `tensor` as the plan counts them.
  struct Record {
    double error_squares = 0;
    double value_squares = 0;
    int64_t not_finite = 0;
    int64_t elements = 0;
    float max_error = 0;
    float amax = 0;
    uint32_t tensor = 0;
    std::byte unused[20] = {};
  };
  static_assert(sizeof(Record) == kSpillRecordBytes);

  // False when they were there before, or are not to be kept.
  bool take_in(const Move& move, const Rows& rows, std::span<const uint64_t> checksums);
  bool open_existing(const io::SystemCalls& calls);
  bool open_copy(const std::filesystem::path& path, const io::SystemCalls& calls);
  SpillLayout layout_in_index(uint64_t tensors) const;
  void expect_panels();
  void begin_filling(const io::SystemCalls& calls);
  uint64_t make_room(const std::filesystem::path& path, const io::SystemCalls& calls) const;
  void finish();                                             // with mutex_ held
  void drop_fresh(const FreshCopy& copy, const Error& why);  // with mutex_ held
  void turn_off(const std::string& reason, bool damaged);    // with mutex_ held
  std::string fingerprint(const SpillLayout& layout) const;
  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(index_.data() + offset);
  }

  const ReadPlan& plan_;
  const io::CheckpointIndex& checkpoint_;
  SpillOptions options_;
  SpillKey key_;
  std::vector<std::filesystem::path> paths_;  // one in each directory
  SpillLayout layout_;
  std::string fingerprint_;
  Buffer index_;
  std::string index_checksum_;  // of the copies that were there before
  std::atomic<State> state_ = State::off;

  mutable std::mutex mutex_;      // guards everything below, and the index while it is filled
  std::vector<FreshCopy> fresh_;  // while filling
  std::vector<io::CheckpointFile> copies_;  // once they can be read, or verified
  std::vector<std::vector<bool>> seen_;     // panels given to add(), of each tensor of the layout
  uint64_t panels_left_ = 0;
  Report report_;
};

}  // namespace sluice
