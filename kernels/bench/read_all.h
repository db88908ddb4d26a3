// Reads memory, whole 16s of bytes, as fast as a kernel can: what others that read are held
// against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/ops.h"

namespace sluice::bench {

// *sum: of all its words, together with what it was; of device memory, as the bytes.
void read_all(std::span<const std::byte> bytes, uint32_t* sum, cuda::Stream stream);

}  // namespace sluice::bench
