#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {

void to_bf16(const float* x, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    const uint32_t quiet = bits | 0x400000;
    const uint32_t code = ((bits & 0x7fffffff) > kInfinityBits ? quiet : rounded) >> 16;
    const auto narrow = static_cast<uint16_t>(code);
    std::memcpy(out + i * 2, &narrow, sizeof narrow);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
