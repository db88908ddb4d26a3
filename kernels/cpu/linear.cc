#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/units.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

using cpu::kDecodedBytes;
using cpu::kRowBlock;
using cpu::kTileRows;

// Panels that one thread takes at a time: few where they stream from memory once, more where a
// block of rows is reused over them.
constexpr int64_t kStreamedPanels = 4;
constexpr int64_t kReusedPanels = 16;

int64_t packed_bytes(int64_t rows, int64_t cols) {
  const int64_t units = ceil_div(cols, 4) * 4;  // whole cells of any type
  return static_cast<int64_t>(round_up(static_cast<uint64_t>(rows * units * 4), 64));
}

// A scale and an offset for each row (cpu::PackJob).
int64_t row_bytes(int64_t rows) { return ceil_div(rows * 8, 64) * 64; }

// Columns of one unit.
int64_t columns_of(cpu::Units kind) {
  return kind == cpu::Units::i8 ? 4 : kind == cpu::Units::bf16_pairs ? 2 : 1;
}

// As many rows at a time as fit a block, in blocks of about one size.
int64_t rows_per_block(int64_t rows) {
  const int64_t blocks = ceil_div(rows, kRowBlock);
  return blocks <= 1 ? rows : ceil_div(ceil_div(rows, blocks), kTileRows) * kTileRows;
}

}  // namespace

int64_t linear_workspace(int64_t rows, int64_t cols, int threads) {
  const int64_t block = std::min(rows, kRowBlock);
  return packed_bytes(block, cols) + row_bytes(block) + threads * kDecodedBytes;
}

void CpuKernels::linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  check_linear(x, w, y);
  const DType dtype = w.format.dtype;
  const cpu::Units kind = input_units(ops_, compute_, dtype);
  std::byte* scratch_at = scratch(linear_workspace(x.rows, x.cols, pool_.size()));
  auto* packed = reinterpret_cast<uint32_t*>(scratch_at);
  const int64_t most = std::min(x.rows, kRowBlock);
  auto* scales = reinterpret_cast<float*>(scratch_at + packed_bytes(most, x.cols));
  auto* offsets = reinterpret_cast<int32_t*>(scales + most);
  std::byte* decoded = scratch_at + packed_bytes(most, x.cols) + row_bytes(most);

  cpu::LinearJob job;
  job.x = packed;
  job.pairs = kind == cpu::Units::bf16_pairs;
  const int64_t unit_cols = columns_of(kind);
  job.cell_units = cell_cols(dtype) / unit_cols;
  job.units = ceil_div(x.cols, cell_cols(dtype)) * job.cell_units;
  job.weight = w.data;
  job.dtype = dtype;
  job.panel_bytes = panel_bytes(dtype, w.cols);
  job.row_scales = w.format.scales == ScaleKind::per_row ? w.scales : nullptr;
  job.block_scales = w.format.scales == ScaleKind::per_block ? w.scales : nullptr;
  job.blocks = ceil_div(w.cols, kScaleBlock);
  if (kind == cpu::Units::i8) {
    job.x_scales = scales;
    job.x_offsets = offsets;
  }
  job.bias = bias;
  job.y_stride = y.stride;
  const int64_t block = rows_per_block(x.rows);
  for (int64_t first = 0; first < x.rows; first += block) {
    job.rows = std::min(block, x.rows - first);
    job.y = y.row<float>(first);
    // Tiles of one size, as far as possible: 20 rows are 10 and 10.
    const int64_t tiles = job.rows <= cpu::kFewRows ? 1 : ceil_div(job.rows, kTileRows);
    job.tile_rows = ceil_div(job.rows, tiles);
    pool_.parallel_for(tiles, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = tile * job.tile_rows;
        const int64_t rows = std::min(job.tile_rows, job.rows - row);
        if (rows <= 0) break;
        ops_.pack_rows({x.row<float>(first + row), x.stride, rows, x.cols, kind, unit_cols,
                        job.units, packed + row * job.units, scales + row, offsets + row});
      }
    });
    pool_.parallel_for(w.rows / kPanelRows,
                       job.rows <= 4 * kTileRows ? kStreamedPanels : kReusedPanels,
                       [&](int64_t begin, int64_t end, int worker) {
                         ops_.linear(job, begin, end, decoded + worker * kDecodedBytes);
                       });
  }
}

}  // namespace sluice
