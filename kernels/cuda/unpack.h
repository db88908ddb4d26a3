// Packed weights, as a CPU has them, in the layout of a device's matrices.
#pragma once

#include "kernels/cuda/ops.h"

namespace sluice::cuda {

// Writes a packed weight (quant/format.h) in the row layout, of whole panels and otherwise the same
// format: the planes whose rows the packed layout interleaves.
void unpack(const Weight& packed, const Weight& to, Stream stream);
// Returns whether a plane's layout differs in the two.
bool is_interleaved(const WeightFormat& format, Plane plane);

}  // namespace sluice::cuda
