// The spill cache: weights as they are in memory, kept on disk, so that later passes and later
// starts read them instead of the checkpoint.
//
// A file holds matrices of one checkpoint under one scheme (plan/spill_layout.h), resident ones
// too: those that are quantized online, and those that the checkpoint stores input-major, so that
// they cannot be streamed from there. It is filled while the first load and the first pass encode
// the tensors, or, where the plan needs it, before the load (spill_writer.h). It appears under its
// name when it is complete, and is not changed afterwards; but experts are met as tokens choose
// them. Where a model has such, the file appears after the first pass, and grows: what is encoded
// later is written to its place in the file, and the index is written again at the end. Every read
// is compared with its checksums: damaged weights are never used. The checkpoint is the fallback,
// or the file is written again.
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
#include "io/reader.h"
#include "quant/encode.h"
#include "src/base/error.h"
#include "src/load/spill_directory.h"
#include "src/load/spill_header.h"
#include "src/memory/buffer.h"
#include "src/memory/ledger.h"
#include "src/plan/spill_layout.h"

namespace sluice {

struct SpillOptions {
  // Each holds a copy, so that all their disks are read at once; empty: no spill cache.
  std::vector<std::filesystem::path> directories;
  std::optional<std::string> limit;  // of a directory: "20GiB", "50%" of the free space
  bool verify = false;               // compare an existing file with the checkpoint first
};

// Identifies the weights in a file.
struct SpillKey {
  std::filesystem::path model;  // the checkpoint's directory, canonical
  std::string scheme;
  Rank rank;
  std::string part = {};  // of the model; empty: the rank's of each matrix
};

// Codes that were read differ from their checksums.
struct SpillDamaged : Error {
  explicit SpillDamaged(const std::string& tensor)
      : Error(ErrorKind::runtime, fmt::format("its copy of {} is damaged", tensor)) {}
};

class Spill {
 public:
  enum class State : uint8_t {
    off,        // no file: no room, another process is filling it, damaged, ...
    filling,    // tensors are added as they are encoded
    verifying,  // encoded tensors are compared with the file
    ready,      // tensors can be read
  };

  // Opens the file of an earlier run, or begins a new one. A fault of the cache is a warning, and
  // turns it off; of one that the plan needs it is an Error: no_fit where there is no room. All
  // arguments but `key` outlive it.
  Spill(const ReadPlan& plan, const io::CheckpointIndex& index, const SpillKey& key,
        const SpillOptions& options, Ledger& ledger,
        const io::SystemCalls& calls = io::system_calls());
  ~Spill();

  State state() const { return state_.load(std::memory_order_acquire); }
  bool ready() const { return state() == State::ready; }
  // Returns whether the plan reads something from here that the checkpoint cannot give it.
  bool is_needed() const { return is_needed_; }
  // Returns whether a directory has room for all that `plan` needs, or a file of an earlier run.
  static bool has_room(const ReadPlan& plan, const io::CheckpointIndex& index, const SpillKey& key,
                       const SpillOptions& options,
                       const io::SystemCalls& calls = io::system_calls());
  // Goes on after the file was turned off: with another process's new one, or with one to be
  // filled. Nothing may use it meanwhile. Error(runtime) where that has been no use before.
  void begin_again();
  // Returns whether it is off because another process had begun to fill the file.
  bool is_filled_elsewhere() const { return is_filled_elsewhere_; }
  // Call between passes over a model whose routers choose: what has been encoded until now can be
  // read, though more is missing. By the one thread that uses layout().
  void use_what_is_there();
  // Adds nothing more, and keeps what was added.
  void stop_growing();
  // has: whether a tensor can be read from the file. wants: whether add() needs it.
  bool has(uint32_t tensor) const { return ready() && layout_.find(tensor) != nullptr; }
  bool wants(uint32_t tensor) const;
  const SpillLayout& layout() const { return layout_; }

  // The copies, any of which a reader may open; empty unless it is ready. Thread-safe.
  std::vector<io::CheckpointFile> files() const;

  // The weight of a move's rows, which begin a panel: the planes that were read, with the scales of
  // the index. Throws SpillDamaged where they differ from the checksums of the index.
  Weight weight(const Move& move, const io::ReadResult& read) const;
  EncodeStats stats(uint32_t tensor) const;  // errors of its encoding
  float amax(uint32_t tensor) const;

  // The encoded rows of a move.
  struct Rows {
    Weight encoded;     // a tile, or a whole parameter
    int64_t first = 0;  // where in it they begin
    EncodeStats stats;
    float amax = 0;  // of their tensor, where that has one scale
  };
  // Adds rows of a tensor that wants() names. `scratch` is write memory, aligned for O_DIRECT;
  // empty: the rows are written from where they are. Thread-safe. Makes the spill ready once all
  // rows are there, or off if that fails.
  void add(const Move& move, const Rows& rows, std::span<std::byte> scratch);

  // Stops the use by this process. `damaged`: also removes the files, for all processes.
  // Thread-safe.
  void stop_using(const std::string& reason, bool damaged);
  // Stops the use of one copy, which cannot be read; the others stay in use.
  void stop_using_copy(const std::filesystem::path& copy, const std::string& reason);

  struct Report {
    std::vector<std::filesystem::path> paths;
    std::string outcome;   // "reused", "written", "growing", "verified", or why there is none
    uint64_t bytes = 0;    // of a copy
    uint64_t written = 0;  // of all copies together
  };
  Report report() const;

 private:
  using FreshCopy = std::pair<std::filesystem::path, std::shared_ptr<io::NewFile>>;
  // Returns false when the rows were there before, or are not to be kept.
  bool take_in(const Move& move, const Rows& rows, std::span<const uint64_t> checksums);
  bool open_existing();
  bool open_copy(const std::filesystem::path& path);
  std::optional<SpillLayout> read_index(const io::Fd& fd, const std::filesystem::path& path,
                                        const SpillHeader& header);
  void write_records();
  bool has_what_is_needed(const SpillLayout& layout) const;
  void write(const io::NewFile& file, const Move& move, const Weight& rows,
             std::span<std::byte> scratch);
  void expect_panels();
  void go_on_growing();
  void note_complete();  // with mutex_ held, as save_index()
  SpillHeader header() const;
  void save_index();
  void begin_filling();
  SpillRoom room_at(const std::filesystem::path& path, const SpillLayout& all) const;
  uint64_t make_room(const std::filesystem::path& path) const;
  void finish(bool grows);                                    // with mutex_ held
  void drop_fresh(const FreshCopy& copy, const Error& why);   // with mutex_ held
  void turn_off(const std::string& reason, bool damaged);     // with mutex_ held
  bool is_replaced(const std::filesystem::path& path) const;  // with mutex_ held
  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(index_.data() + offset);
  }

  const ReadPlan& plan_;
  const io::CheckpointIndex& checkpoint_;
  const io::SystemCalls& calls_;
  SpillOptions options_;
  bool is_needed_;
  int attempts_ = 0;  // to go on
  bool is_filled_elsewhere_ = false;
  SpillKey key_;
  std::vector<std::filesystem::path> paths_;  // one in each directory
  SpillLayout layout_;
  std::string fingerprint_;
  Buffer index_;        // of the tensors of the plan that the file has
  Lease lists_;         // of the layout, and of the panels
  SpillHeader header_;  // of the copies that were there before
  std::atomic<State> state_ = State::off;
  std::atomic<bool> grows_ = false;  // while it is ready, rows are added to fresh_

  mutable std::mutex mutex_;      // guards everything below, and the index while it is filled
  std::vector<FreshCopy> fresh_;  // while filling or growing
  std::vector<io::CheckpointFile> copies_;  // once they can be read, or verified
  std::vector<bool> seen_;  // panels given to add(), each where its checksum is in the index
  uint64_t panels_left_ = 0;
  std::vector<uint32_t> left_;  // of each tensor of the layout
  bool has_more_ = false;       // than the index in the file says
  Report report_;
};

}  // namespace sluice
