// This machine's peak rate of multiply-add instructions: the yardstick of `sluice bench prefill`.
#pragma once

#include "kernels/kernels.h"
#include "src/base/thread_pool.h"

namespace sluice {

// Multiplications and additions a second of all threads of the pool together, from registers, with
// the instruction that linear layers of `weights` use; 0 for the reference backend. The best of
// some runs.
double peak_operations(Isa isa, Compute compute, DType weights, ThreadPool& pool);

}  // namespace sluice
