// Stands for the CUDA headers when kernels are compiled for the emulator: the names of the CUDA C++
// Programming Guide, chapter "C++ Language Extensions", as far as kernels use them, and those that
// kernels/cuda/simt.h promises. Warp operations are faults where CUDA says that their result is
// undefined.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "tests/support/simt/emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block runs at a time. Unlike on a GPU it keeps what the block before left there.
#define __shared__ static

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

// ---- barriers and warps

using SimtWhere = std::source_location;

inline void __syncthreads(SimtWhere where = SimtWhere::current()) {
  sluice::simt::wait_for_block(where);
}

inline void __syncwarp(unsigned mask = 0xffffffff, SimtWhere where = SimtWhere::current()) {
  sluice::simt::wait_for_warp(
      "__syncwarp", mask, nullptr, [](void* const(&)[32], uint32_t) {}, where);
}

namespace sluice::simt {

struct Shuffle {
  uint64_t value;
  int from;  // lane
};

// Every lane gets the value of the lane that it names.
template <class T>
T shuffle(const char* name, unsigned mask, T value, int from, SimtWhere where) {
  static_assert(sizeof(T) <= 8);
  if ((mask >> from & 1) == 0) {
    fault(std::string(name) + " from lane " + std::to_string(from) + ", which is not in its mask",
          where);
  }
  Shuffle mine{0, from};
  std::memcpy(&mine.value, &value, sizeof value);
  auto exchange = [](void* const(&args)[kWarp], uint32_t lanes) {
    uint64_t values[kWarp] = {};
    for (int i = 0; i < kWarp; ++i) {
      if (lanes >> i & 1) values[i] = static_cast<Shuffle*>(args[i])->value;
    }
    for (int i = 0; i < kWarp; ++i) {
      if (lanes >> i & 1) {
        auto* s = static_cast<Shuffle*>(args[i]);
        s->value = values[s->from];
      }
    }
  };
  wait_for_warp(name, mask, &mine, exchange, where);
  std::memcpy(&value, &mine.value, sizeof value);
  return value;
}

// The lane that a shuffle to `to` reads within segments of `width`; lanes outside give their own.
inline int within(int to, int width) {
  const int first = lane() / width * width;
  return to < first || to >= first + width ? lane() : to;
}

}  // namespace sluice::simt

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              SimtWhere where = SimtWhere::current()) {
  const int first = sluice::simt::lane() / width * width;
  return sluice::simt::shuffle("__shfl_sync", mask, value, first + (from & (width - 1)), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  SimtWhere where = SimtWhere::current()) {
  const int from = sluice::simt::within(sluice::simt::lane() ^ lane_mask, width);
  return sluice::simt::shuffle("__shfl_xor_sync", mask, value, from, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   SimtWhere where = SimtWhere::current()) {
  const int from = sluice::simt::within(sluice::simt::lane() + static_cast<int>(delta), width);
  return sluice::simt::shuffle("__shfl_down_sync", mask, value, from, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 SimtWhere where = SimtWhere::current()) {
  const int from = sluice::simt::within(sluice::simt::lane() - static_cast<int>(delta), width);
  return sluice::simt::shuffle("__shfl_up_sync", mask, value, from, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              SimtWhere where = SimtWhere::current()) {
  unsigned vote = predicate != 0;
  auto count = [](void* const(&args)[32], uint32_t lanes) {
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) {
      if (lanes >> i & 1) all |= *static_cast<unsigned*>(args[i]) << i;
    }
    for (int i = 0; i < 32; ++i) {
      if (lanes >> i & 1) *static_cast<unsigned*>(args[i]) = all;
    }
  };
  sluice::simt::wait_for_warp("__ballot_sync", mask, &vote, count, where);
  return vote;
}
inline int __any_sync(unsigned mask, int predicate, SimtWhere where = SimtWhere::current()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SimtWhere where = SimtWhere::current()) {
  return __ballot_sync(mask, predicate, where) == mask;
}

namespace sluice::simt {

// Every lane gets what `op` makes of all lanes' values.
template <class Op>
unsigned reduce(const char* name, unsigned mask, unsigned value, SimtWhere where) {
  auto combine = [](void* const(&args)[kWarp], uint32_t lanes) {
    bool first = true;
    unsigned all = 0;
    for (int i = 0; i < kWarp; ++i) {
      if ((lanes >> i & 1) == 0) continue;
      const unsigned mine = *static_cast<unsigned*>(args[i]);
      all = first ? mine : Op{}(all, mine);
      first = false;
    }
    for (int i = 0; i < kWarp; ++i)
      if (lanes >> i & 1) *static_cast<unsigned*>(args[i]) = all;
  };
  wait_for_warp(name, mask, &value, combine, where);
  return value;
}
struct LargerOf {
  unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; }
};
struct SmallerOf {
  unsigned operator()(unsigned a, unsigned b) const { return a < b ? a : b; }
};

}  // namespace sluice::simt

inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  SimtWhere where = SimtWhere::current()) {
  return sluice::simt::reduce<sluice::simt::LargerOf>("__reduce_max_sync", mask, value, where);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value,
                                  SimtWhere where = SimtWhere::current()) {
  return sluice::simt::reduce<sluice::simt::SmallerOf>("__reduce_min_sync", mask, value, where);
}

// ---- atomics: threads only change places where they wait, so plain accesses are enough

template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  if (value > old) *at = value;
  return old;
}
template <class T>
T atomicCAS(T* at, T compare, T value) {
  const T old = *at;
  if (old == compare) *at = value;
  return old;
}
inline void __threadfence() {}

// ---- arithmetic

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline int __popc(unsigned x) { return std::popcount(x); }
// PTX ISA, "prmt" in its default mode: byte i of the result is the byte of {b, a} that nibble i of
// the selector names.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> (4 * i) & 15;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7)) & 255);
    if (nibble & 8) byte = byte & 128 ? 255 : 0;  // its sign, repeated
    result |= byte << (8 * i);
  }
  return result;
}
// PTX ISA, "dp4a": four products of signed bytes, added to c.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return c;
}

// ---- what kernels/cuda/simt.h promises

#include "tests/support/simt/intrinsics.h"
