// Turns the stored cells of a panel (quant/format.h) into the B tiles of its steps. The loops of
// linear.h need no more of a format than this: a format that is to be multiplied on tiles is one
// more StoredSteps.
#pragma once

#include <type_traits>

#include "kernels/cpu/amx/products.h"
#include "kernels/cpu/simd/cells.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

enum class Stored : uint8_t { bf16, e4m3, i8 };

template <Stored kStored>
struct StoredSteps {
  static constexpr bool kCodes = kStored == Stored::e4m3;     // a tile is not what is stored
  static constexpr bool kBytes = kStored == Stored::i8;       // multiplied as bytes
  static constexpr int64_t kCellTile = kCodes ? 128 : kCell;  // bytes of the tile from a cell
  static constexpr int64_t kStepBytes = kTileBytes * kCell / kCellTile;  // of a panel as stored

  [[gnu::always_inline]] inline void decode_cell(const std::byte* from, std::byte* to) const {
    if constexpr (kCodes) {
      decode_codes(from, to);
    } else {
      for (int64_t at = 0; at < kCell; at += kLanes * 4) store(to + at, load_bits(from + at));
    }
  }

  // A step of which `bytes` are stored: less than kStepBytes at a panel's end. The rest is zeros.
  // fetch(stored cell) is called for each.
  template <class Fetch>
  [[gnu::always_inline]] inline void decode_step(const std::byte* from, int64_t bytes,
                                                 std::byte* to, Fetch&& fetch) const {
    if (bytes == kStepBytes) {
#pragma GCC unroll 16
      for (int64_t at = 0; at < kStepBytes; at += kCell) {
        fetch(from + at);
        decode_cell(from + at, to + at / kCell * kCellTile);
      }
    } else {
      for (int64_t at = 0; at < bytes; at += kCell)
        decode_cell(from + at, to + at / kCell * kCellTile);
      const int64_t filled = bytes / kCell * kCellTile;
      std::memset(to + filled, 0, static_cast<size_t>(kTileBytes - filled));
    }
  }

 private:
#if defined(__AVX512BF16__)
  [[gnu::always_inline]] inline void decode_codes(const std::byte* from, std::byte* to) const {
    const Vu raw = load_bits(from);
    store(to, cells_.template operand<0>(raw));
    store(to + kCell, cells_.template operand<1>(raw));
  }
  struct None {};
  [[no_unique_address]] std::conditional_t<kCodes, Float8ToBf16<DType::f8_e4m3>, None> cells_;
#else
  inline void decode_codes(const std::byte* from, std::byte* to) const {
    const Float8ToF32<DType::f8_e4m3>::Exact cells;
    const auto bits = [](Vf operand) {
      return as_bits(operand * (kXFactor * sum_factor(DType::f8_e4m3)));
    };
    for (int64_t at = 0; at < kCell; at += kLanes * 4) {
      const Vu raw = load_bits(from + at);
      const Vu first = bits(cells.operand<0>(raw)), second = bits(cells.operand<1>(raw));
      const Vu third = bits(cells.operand<2>(raw)), fourth = bits(cells.operand<3>(raw));
      store(to + at, first >> 16 | (second & 0xffff0000));
      store(to + kCell + at, third >> 16 | (fourth & 0xffff0000));
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
