// The bytes of tensors that have to be known before a load can be planned, such as scales.
// Weights take the other road: io/reader.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"

namespace sluice::io {

// A file of a checkpoint, open for reads of its bytes in any order. Only what is asked for enters
// the page cache. Throws Error, of kind runtime when the file has changed.
class OpenBytes {
 public:
  explicit OpenBytes(const CheckpointFile& file);
  void read(uint64_t offset, std::span<char> to) const;

 private:
  CheckpointFile file_;
  std::vector<Fd> fds_;  // of its parts, or its own
};

// Reads tensors in disk order, as headers are read, without read-ahead; with a warning from
// a copy where a file cannot be read. Throws Error, of kind runtime when a file has
// changed.
std::vector<std::string> read_tensors(const CheckpointIndex& index,
                                      std::span<const StoredTensor* const> tensors);

// Reads small tensors that binding and planning need: at most 64 KiB each, 16 MiB in all; more is
// refused.
std::vector<std::string> read_small_tensors(const CheckpointIndex& index,
                                            std::span<const StoredTensor* const> tensors);

// True if both have the same type, shape and bytes, which are read up to the first difference.
bool same_contents(const CheckpointIndex& index, const StoredTensor& a, const StoredTensor& b);

}  // namespace sluice::io
