// The bytes of tensors that have to be known before a load can be planned, such as scales.
// Weights take the other road: io/reader.h.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"

namespace sluice::io {

// Of tensors in disk order. Read as headers are, past the page cache's read-ahead; from a copy
// where a file cannot be read, with a warning. Throws Error, of kind runtime when a file is not
// what it was.
std::vector<std::string> read_tensors(const CheckpointIndex& index,
                                      std::span<const StoredTensor* const> tensors);

// The same of small tensors that binding and planning need: at most 64 KiB each, 16 MiB in all;
// more is refused.
std::vector<std::string> read_small_tensors(const CheckpointIndex& index,
                                            std::span<const StoredTensor* const> tensors);

// True if both have the same type, shape and bytes, which are read up to the first difference.
bool same_contents(const CheckpointIndex& index, const StoredTensor& a, const StoredTensor& b);

}  // namespace sluice::io
