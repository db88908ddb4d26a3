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

// Scales and factors of an element's whole sum, not of the sums of its blocks.
inline const float* whole_x_scales(const LinearJob& job) {
  return job.block_scales == nullptr ? job.x_scales : nullptr;
}
inline float whole_factor(const LinearJob& job) {
  return job.pairs || job.tiles || job.block_scales != nullptr ? 1 : sum_factor(job.dtype);
}

// y of a row and the kLanes output channels from `channel` on.
inline Vf finished(const LinearJob& job, int64_t row, int64_t channel, Vf sum) {
  if (job.x_offsets != nullptr) {
    const Vu codes = as_bits(sum) - static_cast<uint32_t>(job.x_offsets[row]);
    sum = __builtin_convertvector(reinterpret_cast<Vi>(codes), Vf);
  }
  if (const float factor = whole_factor(job); factor != 1) sum *= factor;
  if (const float* x_scales = whole_x_scales(job)) sum *= x_scales[row];
  if (job.row_scales != nullptr) sum *= load(job.row_scales + channel);
  if (job.bias != nullptr) sum += load(job.bias + channel);
  return sum;
}

// Finishes the sums of panels [begin, end). sums[row * stride] begins with panel `begin`, and may
// be y itself.
inline void finish_sums(const LinearJob& job, int64_t begin, int64_t end, const float* sums,
                        int64_t stride) {
  const int64_t first = begin * 16, count = (end - begin) * 16;
  if (sums == job.y + first && whole_x_scales(job) == nullptr && whole_factor(job) == 1 &&
      job.row_scales == nullptr && job.bias == nullptr)
    return;
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int64_t o = 0; o < count; o += kLanes) {
      const Vf sum = load(sums + row * stride + o);
      store(job.y + row * job.y_stride + first + o, finished(job, row, first + o, sum));
    }
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
