#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// What codes of a row are multiples of; NaN for a row that is not finite.
float scale_of(const float* x, int64_t cols) {
  uint32_t top = 0;
  for (int64_t c = 0; c < cols; ++c) {
    uint32_t bits;
    std::memcpy(&bits, x + c, sizeof bits);
    bits &= 0x7fffffff;
    top = bits > top ? bits : top;
  }
  if (top >= kInfinityBits) return __builtin_nanf("");
  const float scale = bits_to_float(top) / 127;
  return scale > 0 ? scale : 1;
}

// 64 columns as bytes; returns what their sum adds to `sums`.
Vi convert_i8(const float* x, float scale, Vi sums, uint32_t* out) {
  alignas(64) int32_t codes[64];
  for (int64_t i = 0; i < 64; i += kLanes) {
    Vf value;
    const Vi code = i8_codes(load(x + i), splat(scale), value);
    sums += code;
    store(codes + i, code);
  }
#if defined(__AVX512F__)
  for (int64_t i = 0; i < 16; i += 4) {
    const __m512i lanes = _mm512_load_si512(codes + i * 4);
    store(out + i, _mm512_cvtepi32_epi8(lanes));
  }
#else
  for (int64_t i = 0; i < 16; ++i) {
    out[i] = 0;
    for (int64_t k = 0; k < 4; ++k)
      out[i] |= (static_cast<uint32_t>(codes[i * 4 + k]) & 0xff) << (8 * k);
  }
#endif
  return sums;
}

// 16 units of one row.
void convert(const float* x, Units kind, uint32_t* out) {
  switch (kind) {
    case Units::f32_rounded:
      for (int64_t i = 0; i < 16; i += kLanes) store(out + i, round_to_bf16(load(x + i)));
      break;
    case Units::bf16_pairs:
#if defined(__AVX512BF16__)
      store(out, _mm512_cvtne2ps_pbh(load(x + 16), load(x)));
#endif
      break;
    default:
      std::memcpy(out, x, 16 * sizeof(float));
  }
}

}  // namespace

void pack_rows(const PackJob& job) {
  const int64_t most = 16 * job.unit_cols;
  alignas(64) uint32_t lines[16][16] = {};
  alignas(64) uint32_t cells[16][16];
  float padded[64];
  const std::byte* pointers[16];
  for (int r = 0; r < 16; ++r) pointers[r] = reinterpret_cast<const std::byte*>(lines[r]);
  const bool bytes = job.kind == Units::i8;
  Vi sums[kFewRows] = {};
  for (int64_t r = 0; bytes && r < job.rows; ++r)
    job.scales[r] = scale_of(job.x + r * job.stride, job.cols);
  for (int64_t unit = 0; unit < job.units; unit += 16) {
    const int64_t count = job.units - unit < 16 ? job.units - unit : 16;
    for (int64_t r = 0; r < job.rows; ++r) {
      const float* x = job.x + r * job.stride + unit * job.unit_cols;
      if (const int64_t left = job.cols - unit * job.unit_cols; left < most) {
        std::memset(padded, 0, sizeof padded);
        std::memcpy(padded, x, static_cast<size_t>(left) * sizeof(float));
        x = padded;
      }
      if (bytes) {
        sums[r] = convert_i8(x, job.scales[r], sums[r], lines[r]);
      } else {
        convert(x, job.kind, lines[r]);
      }
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
