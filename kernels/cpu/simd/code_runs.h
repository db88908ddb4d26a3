// Runs of grouped codes (quant/groups.h), from codes of single columns. Lanes are outputs.
#pragma once

#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int kRunCols = 32;

// Bits of a code in the first words of a run (quant/groups.h).
template <int kBits>
constexpr int kLow = kBits == 3                 ? 2
                     : kBits == 5 || kBits == 6 ? 4
                                                : kBits;
// The first bit of code i of a word that has fields of `each` bits.
constexpr int place_in_word(int each, int i) { return i % 2 * 16 + i / 2 * each; }

template <int kBits>
using Run = Vu[kBits];

// The words of a run of some outputs, of which code(c) is that of column c.
template <int kBits, class Code>
inline void collect(const Code& code, Run<kBits>& run) {
  constexpr int kFirst = kLow<kBits>, kRest = kBits - kFirst, kInFirst = 32 / kFirst;
  Vu rest[kRest > 0 ? kRest : 1] = {};
#pragma GCC unroll 4
  for (int w = 0; w < kFirst; ++w) {
    Vu word{};
#pragma GCC unroll 32
    for (int i = 0; i < kInFirst; ++i) {
      const int c = w * kInFirst + i;
      const Vu whole = code(c);
      word |= (whole & ((1u << kFirst) - 1)) << place_in_word(kFirst, i);
      if constexpr (kRest > 0) {
        constexpr int kInRest = 32 / kRest;
        rest[c / kInRest] |= (whole >> kFirst & ((1u << kRest) - 1))
                             << place_in_word(kRest, c % kInRest);
      }
    }
    run[w] = word;
  }
  for (int w = 0; w < kRest; ++w) run[kFirst + w] = rest[w];
}

template <int kBits>
inline void store_run(const Run<kBits>& run, uint32_t* to) {
#pragma GCC unroll 8
  for (const Vu& words : run) {
    store(to, words);
    to += 16;
  }
}

// The run that codes of 32 columns become. A function of its own, as it is unrolled.
template <int kBits>
[[gnu::noinline]] void store_codes(const Vu* codes, uint32_t* to) {
  Run<kBits> words;
  collect<kBits>([&](int c) { return codes[c]; }, words);
  store_run<kBits>(words, to);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
