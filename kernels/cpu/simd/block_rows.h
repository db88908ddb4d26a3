// Rows of a panel's block, and where their codes and scales go.
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

using Halves [[gnu::vector_size(4 * kLanes)]] = int16_t;

// Decoded groups of columns of one panel. Cells are pairs of columns, 64 bytes each: codes as
// 16-bit integers, or values as bf16.
struct DecodedGroups {
  std::byte* cells = nullptr;
  float* scales = nullptr;  // [groups][16]
  float* mins = nullptr;    // [groups][16]; what has none leaves them alone
};

// One vector of rows of a panel's block: word w as it is interleaved, and where its parts go.
struct BlockRows {
  const std::byte* block;
  DecodedGroups to;
  int64_t lane;                    // the first row
  const uint16_t* grid = nullptr;  // as in GroupedJob
  const int16_t* values = nullptr;

  Vu word(int w) const { return load_bits(block + (w * 16 + lane) * 4); }
  // The f16 behind `words` words.
  Vf half(int words) const { return f16_to_float(load_u16(block + words * 64 + lane * 2)); }
  void set_scale(int group, Vf scale) const { store(to.scales + group * 16 + lane, scale); }
  void set_min(int group, Vf min) const { store(to.mins + group * 16 + lane, min); }
  // Codes of columns `col` and the next: in both halves of each lane, less kZero.
  template <int kZero = 0>
  void set_halves(int col, Vu codes) const {
    store(to.cells + col * 32 + lane * 4, reinterpret_cast<Halves>(codes) - int16_t{kZero});
  }
  // The same of values that bf16 has.
  void set_values(int col, Vf first, Vf second) const {
    const Vu low = as_bits(first), high = as_bits(second);
    store(to.cells + col * 32 + lane * 4, low >> 16 | (high & 0xffff0000));
  }
};

inline Vf low_half(Vu word) { return f16_to_float(word & 0xffff); }
inline Vf high_half(Vu word) { return f16_to_float(word >> 16); }
inline Vf floats(Vu small) { return __builtin_convertvector(reinterpret_cast<Vi>(small), Vf); }
inline Vu byte_of(Vu word, int byte) { return word >> (8 * byte) & 0xff; }

// Powers of two: the least is a subnormal number, 255 NaN.
inline Vf e8m0_to_float(Vu code) {
  const Vu odd = reinterpret_cast<Vu>(code == 0) | reinterpret_cast<Vu>(code == 255);
  return as_floats(code << 23 | (odd & 0x00400000));
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
