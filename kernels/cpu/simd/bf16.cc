// Between float32 and bf16, as the KV cache needs it.
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

void widen_bf16(const std::byte* from, int64_t count, float* out) {
  uint16_t codes[16] = {};
  std::memcpy(codes, from, static_cast<size_t>(count) * 2);
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = static_cast<uint32_t>(codes[i]) << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
