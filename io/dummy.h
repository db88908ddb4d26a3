// A file that is not there: dummy weights. Its bytes depend on their offset alone. A reader makes
// them on pread's threads, whatever kind was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/file.h"

namespace sluice::io {

CheckpointFile dummy_file(uint64_t bytes);
bool is_dummy(const CheckpointFile& file);

// Writes the bytes from `offset` on: BF16 numbers at even offsets, spread evenly over -0.001 to
// 0.001, as vLLM's dummy weights are.
void dummy_bytes(uint64_t offset, std::span<std::byte> to);

}  // namespace sluice::io
