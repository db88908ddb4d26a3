// Places of a batch's requests in their file, so that none of their bodies is held before its
// turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "io/input_file.h"
#include "src/memory/buffer.h"
#include "src/serve/batch/batch_file.h"
#include "src/serve/batch/batch_output.h"

namespace sluice {

struct BatchEntry {
  // In the order in which they are kept; priority and line are next.
  enum class State : uint8_t {
    runs,
    faulty,    // a response says why
    repeated,  // a response says so: its custom_id was in the file before
    done,      // has had a response all along
  };

  Digest id;  // digest of its response's id
  uint64_t offset = 0;
  uint32_t length = 0;  // UINT32_MAX: more than any request has
  uint32_t line = 0;
  int32_t priority = 0;
  State state = State::runs;
};
static_assert(sizeof(BatchEntry) <= 48);

// Limits of a request; a larger one is faulty.
struct RequestLimits {
  uint64_t bytes = 0;        // of its line
  uint64_t parse_bytes = 0;  // limit of parse_bytes()
};

// Lines that are not blank. Error(refused) for more than an index can have.
size_t count_batch_lines(const io::InputFile& file);

class BatchIndex {
 public:
  // Reads the file of `lines` lines; makes an entry for each, in leased memory. `look` is called
  // for each request that has no response in `output`, and returns its priority; what it throws is
  // the request's fault. The file outlives this. Error(no_fit) where there is no room for the
  // index.
  BatchIndex(const io::InputFile& file, size_t lines, const RequestLimits& limits, Ledger& ledger,
             const BatchOutput& output, const std::function<int64_t(const BatchLine&)>& look);

  // Numbers of requests in the file, and of those that had a response from the start.
  int64_t lines() const { return static_cast<int64_t>(lines_); }
  int64_t done() const { return done_; }
  // Bytes of the index in memory.
  uint64_t bytes() const { return Buffer::charged_bytes(entries_.size_bytes()); }

  // Entries that wait for their turn: the lowest priority number first, then in the order of the
  // file.
  std::span<const BatchEntry> pending() const { return entries_; }
  // The line that an entry is of, whose fault may be that of its state. Error(runtime) for one that
  // has changed.
  BatchLine read(const BatchEntry& entry) const;

  // Forgets those for which `answer` says that they have got their response; in the order of
  // pending(). What they took is given back.
  void remove_if(const std::function<bool(const BatchEntry&)>& answered);

 private:
  BatchEntry look_at(std::string_view text, uint64_t offset, uint64_t length, uint64_t number,
                     const BatchOutput& output,
                     const std::function<int64_t(const BatchLine&)>& look) const;
  BatchLine parse(std::string_view text, uint64_t length, uint64_t number) const;
  void find_repeated(const BatchOutput& output);
  void sort_entries();

  const io::InputFile& file_;
  RequestLimits limits_;
  Buffer memory_;
  std::span<BatchEntry> entries_;
  size_t lines_ = 0;
  int64_t done_ = 0;
};

}  // namespace sluice
