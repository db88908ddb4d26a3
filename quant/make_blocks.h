// Rows of float32 as the types that GGUF files have: plain elements, and blocks (quant/blocks.h).
// Codes are chosen for the least sum of squares of errors; those of Q8_0, Q4_0 and MXFP4 as their
// definition in the gguf package has them, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/dtype.h"

namespace sluice {

// The types that make_row() makes: f32, f16, bf16, and some blocks.
std::span<const DType> made_types();

// One row; its columns are whole blocks of the type. Values that are not finite must not be there.
void make_row(DType type, std::span<const float> row, std::byte* to);

}  // namespace sluice
