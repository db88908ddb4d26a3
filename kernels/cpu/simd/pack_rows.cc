#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// 16 units of one row, from at most as many columns as they hold.
void convert(const float* x, int64_t cols, Units kind, uint32_t* out) {
  float padded[32];
  const int64_t whole = kind == Units::bf16_pairs ? 32 : 16;
  if (cols < whole) {
    std::memset(padded, 0, sizeof padded);
    std::memcpy(padded, x, static_cast<size_t>(cols) * sizeof(float));
    x = padded;
  }
  switch (kind) {
    case Units::f32:
      std::memcpy(out, x, 16 * sizeof(float));
      break;
    case Units::f32_rounded:
      for (int64_t i = 0; i < 16; i += kLanes) store(out + i, round_to_bf16(load(x + i)));
      break;
    case Units::bf16_pairs:
#if defined(__AVX512BF16__)
      store(out, _mm512_cvtne2ps_pbh(load(x + 16), load(x)));
#endif
      break;
  }
}

}  // namespace

void pack_rows(const float* x, int64_t stride, int64_t rows, int64_t cols, Units kind,
               int64_t units, uint32_t* out) {
  const int64_t cols_per_unit = kind == Units::bf16_pairs ? 2 : 1;
  alignas(64) uint32_t lines[16][16] = {};
  alignas(64) uint32_t cells[16][16];
  const std::byte* pointers[16];
  for (int r = 0; r < 16; ++r) pointers[r] = reinterpret_cast<const std::byte*>(lines[r]);
  for (int64_t unit = 0; unit < units; unit += 16) {
    const int64_t count = units - unit < 16 ? units - unit : 16;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t left = cols - unit * cols_per_unit, most = 16 * cols_per_unit;
      convert(x + r * stride + unit * cols_per_unit, left < most ? left : most, kind, lines[r]);
    }
    if (rows == 1) {
      copy_words(out + unit, lines[0], count);
      continue;
    }
    transpose_words(pointers, 0, reinterpret_cast<std::byte*>(cells));
    for (int64_t u = 0; u < count; ++u) {
      copy_words(out + (unit + u) * rows, cells[u], rows);
    }
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
