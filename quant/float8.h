// Number formats of 8 and 16 bits, as scalar functions that compile for host and device alike.
//   bf16, IEEE half (f16); E4M3 and E5M2 of "FP8 Formats for Deep Learning" (arXiv:2209.05433), as
//   torch's float8_e4m3fn (no infinities, NaN = 0x7f/0xff, largest 448) and float8_e5m2.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HD __host__ __device__
#else
#define SLUICE_HD
#endif

namespace sluice {

inline constexpr float kE4M3Max = 448.0f;
inline constexpr float kE5M2Max = 57344.0f;

}  // namespace sluice
