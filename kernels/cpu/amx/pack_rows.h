// Rows of x into A tiles (kernels/cpu/amx/tiles.h): a row's units stay together, 16 to a line.
// Tiles are in chunks of steps: [chunk][tile of rows][step].
#pragma once

#include "kernels/cpu/amx/chunks.h"
#include "kernels/cpu/simd/convert.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Ops::pack_rows for Units::bf16_tiles and i8_tiles. job.units is a multiple of 16.
inline void pack_tile(const PackJob& job) {
  const bool bytes = job.kind == Units::i8_tiles, codes = job.scales != nullptr;
  const int64_t most = 16 * job.unit_cols;
  const int64_t groups = codes ? pack_scales(job, bytes ? 127 : 448) : 0;
  for (int64_t r = 0; r < job.tile_rows; ++r) {
    uint32_t* to = nullptr;
    int64_t chunk = 0, left_in_chunk = 0;
    const float* x = job.x + r * job.stride;
    Vi sums{};
    for (int64_t col = 0; col < job.units * job.unit_cols; col += most) {
      if (left_in_chunk-- == 0) {
        to = job.out + chunk_tile(job.chunks, chunk, job.tile, job.tiles) * job.tile_rows * 16 +
             r * 16;
        left_in_chunk = chunk_steps(job.chunks, chunk++) - 1;
      }
      const int64_t left = r < job.rows ? job.cols - col : 0;
      float padded[64];
      const float* from = x + col;
      if (left < most) {
        std::memset(padded, 0, sizeof padded);
        if (left > 0) std::memcpy(padded, from, static_cast<size_t>(left) * sizeof(float));
        from = padded;
      }
      if (codes && !bytes && r < job.rows) {
        round_to_e4m3(from, most, job.scales[r * groups + col / job.group_cols], padded);
        from = padded;
      }
      if (!bytes) {
        convert(from, job.kind, 1, to);
      } else if (r < job.rows) {
        sums = convert_i8(from, job.scales[r], job.kind, sums, to);
      } else {
        std::memset(to, 0, 64);
      }
      to += job.tile_rows * 16;
    }
    if (!bytes || r >= job.rows) continue;
    int32_t sum = 0;
    for (int64_t i = 0; i < kLanes; ++i) sum += sums[i];
    job.offsets[r] = 128 * sum;
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
