#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {

void to_bf16(const float* x, int64_t count, std::byte* out) {
  using Halves [[gnu::vector_size(2 * kLanes)]] = uint16_t;
  const auto codes = [](Vf v) { return __builtin_convertvector(round_to_bf16(v) >> 16, Halves); };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i * 2, codes(load(x + i)));
  if (i == count) return;
  const Halves last = codes(load_some(x + i, count - i, 0));
  std::memcpy(out + i * 2, &last, static_cast<size_t>(count - i) * 2);
}

}  // namespace sluice::cpu::SLUICE_ISA
