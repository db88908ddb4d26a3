// The end of a linear layer: its sums, by scales and with the bias, into y.
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Fetches what the end of a panel's sums, or of their blocks, will read: a core that waits for it
// has nothing more of the weights on their way. The panel may be the one behind the last.
inline void fetch_scales(const LinearJob& job, int64_t panel) {
  if (job.row_scales != nullptr) __builtin_prefetch(job.row_scales + panel * 16);
  if (job.bias != nullptr) __builtin_prefetch(job.bias + panel * 16);
  for (int64_t block = 0; job.block_scales != nullptr && block < job.blocks; block += 16)
    __builtin_prefetch(job.block_scales + panel * job.blocks + block);
}

// Of panels [begin, end); sums[row * stride] begins with panel `begin`, and may be y itself.
inline void finish_sums(const LinearJob& job, int64_t begin, int64_t end, const float* sums,
                        int64_t stride) {
  const int64_t first = begin * 16, count = (end - begin) * 16;
  const float* x_scales = job.block_scales == nullptr ? job.x_scales : nullptr;
  const bool whole = !job.pairs && !job.tiles && job.block_scales == nullptr;
  const float factor = whole ? sum_factor(job.dtype) : 1;
  if (sums == job.y + first && x_scales == nullptr && job.row_scales == nullptr &&
      job.bias == nullptr && factor == 1)
    return;
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int64_t o = 0; o < count; o += kLanes) {
      Vf sum = load(sums + row * stride + o);
      if (job.x_offsets != nullptr) {
        const Vu codes = as_bits(sum) - static_cast<uint32_t>(job.x_offsets[row]);
        sum = __builtin_convertvector(reinterpret_cast<Vi>(codes), Vf);
      }
      if (factor != 1) sum *= factor;
      if (x_scales != nullptr) sum *= x_scales[row];
      if (job.row_scales != nullptr) sum *= load(job.row_scales + first + o);
      if (job.bias != nullptr) sum += load(job.bias + first + o);
      store(job.y + row * job.y_stride + first + o, sum);
    }
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
