// The part of device.h that kernels/cuda/simt.h promises: launches, vector accesses and the
// fragments of tensor cores, whose layouts are those of the PTX ISA, section "Matrix Fragments for
// mma.m16n8k16 with floating point type", "... mma.m16n8k32", and section "ldmatrix".
#pragma once

#include "quant/float8.h"
#include "tests/support/simt/emulator.h"
#include "tests/support/simt/streams.h"

namespace sluice::cuda {

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Launch& at, CUstream_st* stream, Args... args) {
  auto run = [=] { simt::run(at, [&] { kernel(args...); }); };
  stream == nullptr ? run() : stream->owner->put(stream, run);  // null: at once
}

template <class... Params, class... Args>
void launch_early(void (*kernel)(Params...), const Launch& at, CUstream_st* stream, Args... args) {
  launch(kernel, at, stream, args...);
}
inline void wait_for_earlier() {}

template <class T>
T& shared_memory() {
  return *reinterpret_cast<T*>(simt::dynamic_shared());
}

template <class V>
void check_aligned(const void* p, SimtWhere where) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(V) != 0) {
    simt::fault("an access of " + std::to_string(sizeof(V)) + " bytes that is not aligned", where);
  }
}
template <class V>
V load_as(const void* p, SimtWhere where = SimtWhere::current()) {
  check_aligned<V>(p, where);
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
V load_streaming(const void* p, SimtWhere where = SimtWhere::current()) {
  return load_as<V>(p, where);
}
template <class V>
void store_as(void* p, const V& v, SimtWhere where = SimtWhere::current()) {
  check_aligned<V>(p, where);
  std::memcpy(p, &v, sizeof v);
}

inline void copy_async(void* to, const void* from, bool there,
                       SimtWhere where = SimtWhere::current()) {
  check_aligned<uint4>(from, where);
  check_aligned<uint4>(to, where);
  there ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
}
inline void copies_begun() {}
template <int kLeft>
void wait_for_copies() {}
inline float exp2_approx(float x) { return std::exp2(x); }

inline float bf16_half(uint32_t pair, int half) {
  return bf16_to_float(static_cast<uint16_t>(pair >> (16 * half)));
}
inline uint32_t bf16x2_from_floats(float low, float high) {
  return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
}
inline uint32_t bf16x2_mul(uint32_t a, uint32_t b) {
  return bf16x2_from_floats(bf16_half(a, 0) * bf16_half(b, 0), bf16_half(a, 1) * bf16_half(b, 1));
}
inline uint32_t bf16x2_add(uint32_t a, uint32_t b) {
  return bf16x2_from_floats(bf16_half(a, 0) + bf16_half(b, 0), bf16_half(a, 1) + bf16_half(b, 1));
}

struct MmaArgs {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

// Lane 4g + t holds, in this order, two columns (A, D) or rows (B) from 2t of
//   A[16 x 16]: row g, row g + 8; then the same rows from column 2t + 8
//   B[16 x 8]:  column g, from row 2t and from row 2t + 8
//   D[16 x 8]:  row g, row g + 8
inline void multiply_fragments(void* const (&args)[32], uint32_t) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto* m = static_cast<const MmaArgs*>(args[l]);
    const int g = l / 4, t = l % 4;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) {
        a[g + r % 2 * 8][2 * t + r / 2 * 8 + half] = bf16_half(m->a[r], half);
      }
      for (int r = 0; r < 2; ++r) b[2 * t + r * 8 + half][g] = bf16_half(m->b[r], half);
    }
  }
  for (int l = 0; l < 32; ++l) {
    auto* m = static_cast<MmaArgs*>(args[l]);
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + i / 2 * 8, col = l % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) m->d[i] += a[row][k] * b[k][col];
    }
  }
}

inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                     SimtWhere where = SimtWhere::current()) {
  MmaArgs args{d, a, b};
  simt::wait_for_warp("mma_bf16", 0xffffffff, &args, multiply_fragments, where);
}

struct IntegerMmaArgs {
  int* d;
  const uint32_t* a;
  const uint32_t* b;
};

// The same places of words, each of four neighbouring columns (A) or rows (B).
inline void multiply_integer_fragments(void* const (&args)[32], uint32_t) {
  int a[16][32], b[32][8];
  for (int l = 0; l < 32; ++l) {
    const auto* m = static_cast<const IntegerMmaArgs*>(args[l]);
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; ++i) {
      for (int r = 0; r < 4; ++r)
        a[g + r % 2 * 8][4 * t + r / 2 * 16 + i] = static_cast<int8_t>(m->a[r] >> (8 * i));
      for (int r = 0; r < 2; ++r)
        b[4 * t + r * 16 + i][g] = static_cast<int8_t>(m->b[r] >> (8 * i));
    }
  }
  for (int l = 0; l < 32; ++l) {
    auto* m = static_cast<IntegerMmaArgs*>(args[l]);
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + i / 2 * 8, col = l % 4 * 2 + i % 2;
      for (int k = 0; k < 32; ++k) m->d[i] += a[row][k] * b[k][col];
    }
  }
}

inline void mma_i8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   SimtWhere where = SimtWhere::current()) {
  IntegerMmaArgs args{d, a, b};
  simt::wait_for_warp("mma_i8", 0xffffffff, &args, multiply_integer_fragments, where);
}

struct LdmatrixArgs {
  uint32_t* to;
  const void* row;
  bool transposed;
};

// Row r of matrix m is the 16 bytes at the address that lane 8m + r gives.
inline void load_fragments(void* const (&args)[32], uint32_t) {
  for (int l = 0; l < 32; ++l) {
    auto* mine = static_cast<LdmatrixArgs*>(args[l]);
    for (int m = 0; m < 4; ++m) {
      uint16_t pair[2];
      for (int half = 0; half < 2; ++half) {
        int row = l / 4, col = l % 4 * 2 + half;
        if (mine->transposed) std::swap(row, col);
        const auto* from = static_cast<const LdmatrixArgs*>(args[8 * m + row])->row;
        std::memcpy(&pair[half], static_cast<const std::byte*>(from) + 2 * col, 2);
      }
      mine->to[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  }
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, SimtWhere where = SimtWhere::current()) {
  check_aligned<uint4>(row, where);
  LdmatrixArgs args{r, row, false};
  simt::wait_for_warp("ldmatrix_x4", 0xffffffff, &args, load_fragments, where);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row,
                              SimtWhere where = SimtWhere::current()) {
  check_aligned<uint4>(row, where);
  LdmatrixArgs args{r, row, true};
  simt::wait_for_warp("ldmatrix_x4_trans", 0xffffffff, &args, load_fragments, where);
}

}  // namespace sluice::cuda
