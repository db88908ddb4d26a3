#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

template <int kMantissaBits, int kBias>
void convert(const float* x, int64_t count, float largest, float scale, std::byte* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t lanes = count - i < kLanes ? count - i : kLanes;
    const Vf v = lanes == kLanes ? load(x + i) : load_some(x + i, lanes, 0);
    const Vf magnitude = as_floats(as_bits(v) & 0x7fffffff);
    Vf value;
    const Vu code =
        minifloat_code<kMantissaBits, kBias>(min(splat(largest), magnitude / scale), value);
    const Vu number = below(as_bits(magnitude), kInfinityBits + 1);
    const Vu all = select(number, code, Vu{} + 0x7f) | (as_bits(v) & 0x80000000) >> 24;
    for (int64_t lane = 0; lane < lanes; ++lane) out[i + lane] = static_cast<std::byte>(all[lane]);
  }
}

}  // namespace

void to_float8(const float* x, int64_t count, DType dtype, float scale, std::byte* out) {
  if (dtype == DType::f8_e4m3) return convert<3, 7>(x, count, 448.0f, scale, out);
  convert<2, 15>(x, count, 57344.0f, scale, out);
}

}  // namespace sluice::cpu::SLUICE_ISA
