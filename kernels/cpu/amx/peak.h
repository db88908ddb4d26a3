// Products of tiles that stay in registers, to measure what the instruction gives:
// kernels/cpu/peak.h.
#pragma once

#include "kernels/cpu/amx/linear.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

template <class Tiles, bool kBytes>
void repeat_products(int64_t rounds) {
  Tiles::template zero<kA>();
  Tiles::template zero<kB>();
  zero_sums<Tiles, 4>();
  for (int64_t i = 0; i < rounds; ++i) {
    add_product<Tiles, kBytes, 0, kA, kB>();
    add_product<Tiles, kBytes, 1, kA, kB>();
    add_product<Tiles, kBytes, 2, kA, kB>();
    add_product<Tiles, kBytes, 3, kA, kB>();
  }
}

// Ops::multiply_add for Units::bf16_tiles and i8_tiles. A product takes as long as many of a
// vector's, so there are fewer.
template <class Tiles>
int64_t multiply_add_tiles(Units kind, int64_t rounds, uint64_t* seen) {
  const TilesInUse<Tiles> tiles(kStepLines);
  const bool bytes = kind == Units::i8_tiles;
  rounds = (rounds + 7) / 8;
  if (bytes) {
    repeat_products<Tiles, true>(rounds);
  } else {
    repeat_products<Tiles, false>(rounds);
  }
  alignas(64) uint32_t sums[kTileBytes / 4];
  Tiles::template store<0>(sums, kTileLine);
  *seen += sums[0];
  return int64_t{8} * rounds * kStepLines * 16 * (bytes ? 64 : 32);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
