// Plain reading, to measure what memory gives: kernels/cpu/membw.h.
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kStep = 512;  // bytes
constexpr int64_t kAhead = 4096;

template <bool kPrefetch>
uint64_t read_steps(const std::byte* from, int64_t bytes) {
  constexpr int64_t kVectors = kStep / 4 / kLanes;
  Vu seen[kVectors] = {};
  for (int64_t at = 0; at + kStep <= bytes; at += kStep) {
    if (kPrefetch) {
#pragma GCC unroll 8
      for (int64_t line = 0; line < kStep; line += 64) {
        __builtin_prefetch(from + at + kAhead + line);
      }
    }
#pragma GCC unroll 32
    for (int64_t v = 0; v < kVectors; ++v) seen[v] ^= load_bits(from + at + v * kLanes * 4);
  }
  uint64_t all = 0;
  for (const Vu& v : seen) {
    for (int64_t lane = 0; lane < kLanes; ++lane) all ^= v[lane];
  }
  return all;
}

}  // namespace

uint64_t read(const std::byte* from, int64_t bytes, bool prefetch) {
  return prefetch ? read_steps<true>(from, bytes) : read_steps<false>(from, bytes);
}

}  // namespace sluice::cpu::SLUICE_ISA
