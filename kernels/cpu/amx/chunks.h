// Chunks of steps (TileChunks), and x in them.
#pragma once

#include "kernels/cpu/ops.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The first step of chunk `i`; behind the last one: the number of steps.
inline int64_t chunk_begin(const TileChunks& chunks, int64_t i) {
  const int64_t units = (chunks.steps + chunks.unit - 1) / chunks.unit;
  const int64_t begin = i * units / chunks.count * chunks.unit;
  return begin < chunks.steps ? begin : chunks.steps;
}
inline int64_t chunk_steps(const TileChunks& chunks, int64_t i) {
  return chunk_begin(chunks, i + 1) - chunk_begin(chunks, i);
}
// Returns the tile where a chunk's first step is, in x as tiles [chunk][tile of rows][step].
inline int64_t chunk_tile(const TileChunks& chunks, int64_t i, int64_t tile, int64_t tiles) {
  return chunk_begin(chunks, i) * tiles + tile * chunk_steps(chunks, i);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
