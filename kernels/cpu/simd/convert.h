// Rows of x into units of the product (cpu::Units).
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Returns the scale of codes of x; NaN where x is not finite.
inline float scale_of(const float* x, int64_t cols, float largest_code) {
  uint32_t top = 0;
  for (int64_t c = 0; c < cols; ++c) {
    uint32_t bits;
    std::memcpy(&bits, x + c, sizeof bits);
    bits &= 0x7fffffff;
    top = bits > top ? bits : top;
  }
  if (top >= kInfinityBits) return __builtin_nanf("");
  const float scale = bits_to_float(top) / largest_code;
  return scale > 0 ? scale : 1;
}

// job.scales, and how many a row has.
inline int64_t pack_scales(const PackJob& job, float largest_code) {
  const int64_t groups = (job.cols + job.group_cols - 1) / job.group_cols;
  for (int64_t i = 0; i < job.rows * groups; ++i) {
    const int64_t col = i % groups * job.group_cols, left = job.cols - col;
    job.scales[i] = scale_of(job.x + i / groups * job.stride + col,
                             left < job.group_cols ? left : job.group_cols, largest_code);
  }
  return groups;
}

// `count` columns, a multiple of kLanes, as values of E4M3.
inline void round_to_e4m3(const float* x, int64_t count, float scale, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vf v = load(x + i);
    const Vf magnitude = as_floats(as_bits(v) & 0x7fffffff) / scale;
    Vf value;
    minifloat_code<3, 7>(min(splat(448.0f), magnitude), value);
    store(out + i, as_bits(value) | (as_bits(v) & 0x80000000));
  }
}

// 16 units of codes, of 64 columns or of 32; returns what their sum adds to `sums`.
inline Vi convert_i8(const float* x, float scale, Units kind, Vi sums, uint32_t* out) {
  alignas(64) int32_t codes[64];
  for (int64_t i = 0; i < (kind == Units::i16_pairs ? 32 : 64); i += kLanes) {
    Vf value;
    const Vi code = i8_codes(load(x + i), splat(scale), value);
    sums += code;
    store(codes + i, code);
  }
  if (kind == Units::i16_pairs) {
    for (int64_t i = 0; i < 16; ++i) {
      const int32_t* first = codes + i / 2 * 4 + i % 2;
      out[i] = (static_cast<uint32_t>(first[0]) & 0xffff) | static_cast<uint32_t>(first[2]) << 16;
    }
    return sums;
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

// 16 units of one row; those of float32 by a factor.
inline void convert(const float* x, Units kind, float factor, uint32_t* out) {
  switch (kind) {
    case Units::f32_rounded:
      for (int64_t i = 0; i < 16; i += kLanes)
        store(out + i, as_floats(round_to_bf16(load(x + i))) * factor);
      break;
    case Units::bf16_pairs:
    case Units::bf16_tiles:
#if defined(__AVX512BF16__)
      store(out, _mm512_cvtne2ps_pbh(load(x + 16), load(x)));
#else
      for (int64_t i = 0; i < 16; i += kLanes) {
        const Vf first = load(x + 2 * i), second = load(x + 2 * i + kLanes);
        const Vu low = round_to_bf16(even_lanes(first, second)) >> 16;
        store(out + i, low | round_to_bf16(odd_lanes(first, second)));
      }
#endif
      break;
    default:
      for (int64_t i = 0; i < 16; i += kLanes) store(out + i, load(x + i) * factor);
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
