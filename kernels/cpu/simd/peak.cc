// Multiply-adds from registers alone, to measure what the instruction gives: kernels/cpu/peak.h.
#include "kernels/cpu/simd/cells.h"
#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kSums = 24;
#elif defined(__AVX2__)
constexpr int kSums = 12;
#else
constexpr int kSums = 6;
#endif

// Equal sums would be made once.
template <class V>
inline void keep_apart(V& v) {
  asm volatile("" : SLUICE_VECTOR(v));
}

template <class Cells>
uint64_t run(int64_t rounds, uint32_t seed) {
  const Cells cells;
  const uint32_t x = seed | 0x3f803f80;
  typename Cells::Raw raw;
  uint32_t words[kLanes];
  for (uint32_t& word : words) word = x;
  std::memcpy(&raw, words, sizeof raw);
  auto unit = Cells::unit(Vu{} + x);
  const auto weights = cells.template operand<0>(raw);
  typename Cells::Sum sums[kSums] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 32
    for (int s = 0; s < kSums; ++s) {
      sums[s] = Cells::multiply_add(sums[s], unit, weights);
      keep_apart(unit);  // lest a product is made once for all sums
      keep_apart(sums[s]);
    }
  }
  uint64_t seen = 0;
#pragma GCC unroll 32
  for (int s = 0; s < kSums; ++s) {
    const auto bits = reinterpret_cast<Vu>(sums[s]);
    seen += bits[0];
  }
  return seen;
}

}  // namespace

int64_t multiply_add(Units kind, int64_t rounds, uint64_t* seen) {
  const auto seed = static_cast<uint32_t>(*seen & 1);
  int64_t products = 1;  // of a lane
  switch (kind) {
    case Units::i8:
    case Units::i16_pairs:
      *seen += run<I8Cells>(rounds, seed);
      products = 4 / I8Cells::kUnits;
      break;
    case Units::bf16_pairs:
#if defined(__AVX512BF16__)
      *seen += run<Bf16Pairs>(rounds, seed);
      products = 2;
      break;
#endif
    default:
      *seen += run<F32Cells>(rounds, seed);
  }
  return 2 * products * kLanes * kSums * rounds;
}

}  // namespace sluice::cpu::SLUICE_ISA
