// Plain reading, to measure what memory gives: kernels/cpu/membw.h.
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kStep = 512;  // bytes
constexpr int64_t kAhead = 4096;

constexpr int kNoFetch = -1;

// kStep bytes at a time, the same number from each of kStreams parts. kLevel: of
// __builtin_prefetch, or kNoFetch.
template <int64_t kStreams, int kLevel>
uint64_t read_steps(const std::byte* from, int64_t bytes) {
  constexpr int64_t kRun = kStep / kStreams;
  constexpr int64_t kVectors = kStep / 4 / kLanes;
  const int64_t part = bytes / kStreams;
  Vu seen[kVectors] = {};
  for (int64_t at = 0; at + kRun <= part; at += kRun) {
    if constexpr (kLevel != kNoFetch) {
#pragma GCC unroll 8
      for (int64_t line = 0; line < kStep; line += 64) {
        const std::byte* in_part = from + line / kRun * part + at + line % kRun;
        __builtin_prefetch(in_part + kAhead / kStreams, 0, kLevel);
      }
    }
#pragma GCC unroll 32
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t byte = v * kLanes * 4;
      seen[v] ^= load_bits(from + byte / kRun * part + at + byte % kRun);
    }
  }
  uint64_t all = 0;
  for (const Vu& v : seen) {
    for (int64_t lane = 0; lane < kLanes; ++lane) all ^= v[lane];
  }
  return all;
}

}  // namespace

uint64_t read(const std::byte* from, int64_t bytes, ReadWay way) {
  switch (way) {
    case ReadWay::into_l1:
      return read_steps<1, 0>(from, bytes);
    case ReadWay::four_into_l1:
      return read_steps<4, 0>(from, bytes);
    case ReadWay::four_into_l2:
      return read_steps<4, 2>(from, bytes);
    default:
      return read_steps<1, kNoFetch>(from, bytes);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
