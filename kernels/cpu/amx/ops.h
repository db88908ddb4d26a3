// The table of an instruction set with tiles: linear layers of bf16, E4M3 and i8 weights on them,
// and attention of bf16; all else as SLUICE_ISA.
#pragma once

#include "kernels/cpu/amx/attention.h"
#include "kernels/cpu/amx/linear.h"
#include "kernels/cpu/amx/pack_rows.h"
#include "kernels/cpu/amx/peak.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

inline void pack_rows_or_tile(const PackJob& job) {
  if (job.tile_rows > 0) return pack_tile(job);
  pack_rows(job);
}

template <class Tiles>
void linear_or_on_tiles(const LinearJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  if (job.tiles) return linear_on_tiles<Tiles>(job, begin, end, scratch);
  linear(job, begin, end, scratch);
}

#if defined(__AVX512BF16__)
template <class Tiles>
void attend_or_on_tiles(const AttentionJob& job, int64_t partition, float* scratch,
                        AttentionSums out) {
  if (job.units == Units::bf16_tiles) return attend_on_tiles<Tiles>(job, partition, scratch, out);
  attend(job, partition, scratch, out);
}
#endif

template <class Tiles>
int64_t multiply_add_or_tiles(Units kind, int64_t rounds, uint64_t* seen) {
  if (kind == Units::bf16_tiles || kind == Units::i8_tiles)
    return multiply_add_tiles<Tiles>(kind, rounds, seen);
  return multiply_add(kind, rounds, seen);
}

template <class Tiles>
constexpr Ops tile_ops(const char* name) {
  Ops ops = vector_ops(name);
  ops.bf16_units = Units::bf16_tiles;
  ops.i8_units = Units::i8_tiles;
  ops.pack_rows = pack_rows_or_tile;
  ops.linear = linear_or_on_tiles<Tiles>;
#if defined(__AVX512BF16__)  // keys and values become pairs
  ops.attention_units = Units::bf16_tiles;
  ops.attend = attend_or_on_tiles<Tiles>;
#endif
  ops.multiply_add = multiply_add_or_tiles<Tiles>;
  return ops;
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
