// Shared by all readers: the staging area as slots, a request as the chunks that fill its slot, and
// the effect of one read's result on its chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/open_file.h"
#include "io/reader.h"
#include "io/system_calls.h"

namespace sluice::io {

// One read that is to be done; what a short read leaves is read again.
//
//     offset of request          its end
//   |....[======================]......|     widened to kDirectAlignment
//   |   chunk     |   chunk     | last |
struct Chunk {
  uint32_t slot = 0;
  uint32_t file = 0;
  std::byte* memory = nullptr;
  uint64_t begin = 0;        // in the file
  uint64_t length = 0;       // bytes to ask for; the file may end before them
  uint64_t needed = 0;       // bytes that must arrive: fewer than `length` in the last chunk only
  uint64_t done = 0;         // bytes that have; a multiple of kDirectAlignment with O_DIRECT
  int without_progress = 0;  // reads in a row that brought nothing

  // The read that is to be done now.
  std::byte* to() const { return memory + done; }
  uint64_t offset() const { return begin + done; }
  uint64_t missing() const { return length - done; }
  uint64_t needed_end() const { return begin + needed; }
};

// Takes in the result of reading `chunk`: a number of bytes, or -errno. True: the chunk has
// arrived. False: read what is missing. Throws Error naming file and offset when reading
// again is no use.
bool take_result(Chunk& chunk, int64_t result, const OpenFile& file, const SystemCalls& calls,
                 ReaderStats& stats);

// Bytes that a request asks for.
uint64_t bytes_of(const ReadRequest& request);

class Slots {
 public:
  Slots(std::span<std::byte> staging, const ReaderOptions& options);

  int count() const { return static_cast<int>(slots_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  size_t chunk_count() const { return chunks_.size(); }
  uint64_t max_read() const { return slot_bytes_ - kDirectAlignment; }

  // Occupies a free slot. The chunks stay where they are until the slot is given back; they may be
  // read in any order and by any thread.
  // Chunks of an extent follow those of the one before.
  std::span<Chunk> take(const ReadRequest& request, std::span<const OpenFile> files);
  // Its chunk has arrived: true when it was the slot's last.
  bool arrived(uint32_t slot) { return --slots_[slot].chunks_left == 0; }
  ReadResult result(uint32_t slot) const;
  void give_back(uint32_t slot);

  size_t index_of(const Chunk& chunk) const { return static_cast<size_t>(&chunk - chunks_.data()); }
  Chunk& chunk(size_t index) { return chunks_[index]; }

 private:
  struct Slot {
    uint64_t tag = 0;
    std::array<std::span<const std::byte>, kMostExtents> extents = {};  // in memory
    uint32_t chunks_left = 0;
    bool taken = false;
  };

  std::byte* memory(uint32_t slot) const { return staging_.data() + slot * slot_bytes_; }

  std::span<std::byte> staging_;
  uint64_t slot_bytes_;
  uint64_t chunk_bytes_;
  uint64_t chunks_per_slot_;  // at most
  size_t most_extents_;
  std::vector<Slot> slots_;
  std::vector<Chunk> chunks_;  // chunks_per_slot_ for each slot
  std::vector<uint32_t> free_;
};

}  // namespace sluice::io
