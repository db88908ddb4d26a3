// The layout of matrices that a device multiplies.
#pragma once

#include "quant/format.h"

namespace sluice {

// packed: of all formats, as a CPU needs it. by_codes: of codes that a GPU's tensor cores multiply
// (bf16, f8_e4m3, i8), which they read as panels have them; all others in plain rows. rows: all in
// plain rows, for who decodes them.
enum class MatrixLayout : uint8_t { packed, by_codes, rows };

// The layout of a matrix in this format, but for its layout.
WeightLayout layout_of(MatrixLayout device, const WeightFormat& format);
WeightFormat with_layout(MatrixLayout device, WeightFormat format);

// Returns whether layers round their inputs to 8 bits where that is asked for: on a CPU, whose
// products of codes in groups are of integers. A GPU's are of bf16, and gain nothing by it.
bool can_round_inputs(MatrixLayout device, const WeightFormat& format);

}  // namespace sluice
