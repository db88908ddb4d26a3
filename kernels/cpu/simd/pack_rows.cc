#include "kernels/cpu/simd/convert.h"
#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {
void pack_rows(const PackJob& job) {
  const int64_t most = 16 * job.unit_cols;
  alignas(64) uint32_t lines[16][16] = {};
  alignas(64) uint32_t cells[16][16];
  float padded[64];
  const std::byte* pointers[16];
  for (int r = 0; r < 16; ++r) pointers[r] = reinterpret_cast<const std::byte*>(lines[r]);
  const bool bytes = job.kind == Units::i8 || job.kind == Units::i16_pairs,
             codes = job.scales != nullptr;
  Vi sums[kFewRows] = {};
  const int64_t groups = codes ? pack_scales(job, bytes ? 127 : 448) : 0;
  for (int64_t unit = 0; unit < job.units; unit += 16) {
    const int64_t count = job.units - unit < 16 ? job.units - unit : 16;
    for (int64_t r = 0; r < job.rows; ++r) {
      const float* x = job.x + r * job.stride + unit * job.unit_cols;
      if (const int64_t left = job.cols - unit * job.unit_cols; left < most) {
        std::memset(padded, 0, sizeof padded);
        if (left > 0) std::memcpy(padded, x, static_cast<size_t>(left) * sizeof(float));
        x = padded;
      }
      if (bytes) {
        sums[r] = convert_i8(x, job.scales[r], job.kind, sums[r], lines[r]);
        continue;
      }
      if (codes) {
        const int64_t group = unit * job.unit_cols / job.group_cols;
        round_to_e4m3(x, most, job.scales[r * groups + group], padded);
        x = padded;
      }
      convert(x, job.kind, job.f8_weights ? kXFactor : 1, lines[r]);
    }
    if (job.rows == 1) {
      copy_words(job.out + unit, lines[0], count);
      continue;
    }
    transpose_words(pointers, 0, reinterpret_cast<std::byte*>(cells));
    for (int64_t u = 0; u < count; ++u) {
      copy_words(job.out + (unit + u) * job.rows, cells[u], job.rows);
    }
  }
  for (int64_t r = 0; bytes && r < job.rows; ++r) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kLanes; ++i) sum += sums[r][i];
    job.offsets[r] = 128 * sum;
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
