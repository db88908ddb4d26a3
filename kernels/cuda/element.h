// Number formats as kernels read and write them, several elements at a time.
#pragma once

#include <cstdint>

#include "quant/float8.h"
#include "src/base/dtype.h"

namespace sluice::cuda {

// The code type of a stored dtype, and its conversions from and to float32.
template <DType kDType>
struct Element;

template <>
struct Element<DType::f64> {  // only read
  using Code = double;
  SLUICE_HD static float decode(Code x) { return static_cast<float>(x); }
};
template <>
struct Element<DType::i64> {  // only read
  using Code = int64_t;
  SLUICE_HD static float decode(Code x) { return static_cast<float>(x); }
};
template <>
struct Element<DType::i32> {  // only read
  using Code = int32_t;
  SLUICE_HD static float decode(Code x) { return static_cast<float>(x); }
};
template <>
struct Element<DType::f32> {
  using Code = float;
  SLUICE_HD static float decode(Code x) { return x; }
  SLUICE_HD static Code encode(float x) { return x; }
};
template <>
struct Element<DType::f16> {
  using Code = uint16_t;
  SLUICE_HD static float decode(Code x) { return f16_to_float(x); }
  SLUICE_HD static Code encode(float x) { return float_to_f16(x); }
};
template <>
struct Element<DType::bf16> {
  using Code = uint16_t;
  SLUICE_HD static float decode(Code x) { return bf16_to_float(x); }
  SLUICE_HD static Code encode(float x) { return float_to_bf16(x); }
};
template <>
struct Element<DType::f8_e4m3> {
  using Code = uint8_t;
  static constexpr float kMax = kE4M3Max;
  SLUICE_HD static float decode(Code x) { return e4m3_to_float(x); }
  SLUICE_HD static Code encode(float x) { return float_to_e4m3(x); }
};
template <>
struct Element<DType::f8_e5m2> {
  using Code = uint8_t;
  static constexpr float kMax = kE5M2Max;
  SLUICE_HD static float decode(Code x) { return e5m2_to_float(x); }
  SLUICE_HD static Code encode(float x) { return float_to_e5m2(x); }
};
template <>
struct Element<DType::i8> {  // kept as code + 128 (quant/format.h)
  using Code = uint8_t;
  static constexpr float kMax = 127;
  SLUICE_HD static float decode(Code x) { return static_cast<float>(static_cast<int>(x) - 128); }
  SLUICE_HD static Code encode(float x) {
    // Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
    constexpr float kMagic = 12582912.0f;
    const float in_range = x > kMax ? kMax : x < -kMax ? -kMax : x == x ? x : 0.0f;
    return static_cast<Code>(std::bit_cast<uint32_t>(in_range + kMagic) + 128);
  }
};

// Codes have a scale.
constexpr bool dtype_is_code(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::i8; }

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Vec {
  T at[kCount];
};

}  // namespace sluice::cuda
