#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/units.h"
#include "kernels/launch_checks.h"
#include "quant/groups.h"

namespace sluice {
namespace {

using cpu::kReusedPanels;
using cpu::kRowBlock;
using cpu::kStreamedPanels;
using cpu::kTileRows;

// LinearScratch of one call, in order: x packed; a scale for each block of columns and an offset
// for each row (cpu::PackJob); each thread's part.
struct LinearScratch {
  int64_t packed;
  int64_t rows;
  int64_t thread;
  int64_t bytes(int threads) const { return packed + rows + threads * thread; }
};
int64_t rows_bytes(int64_t rows, int64_t cols) {
  return round_to(rows * (ceil_div(cols, kScaleBlock) + 1) * 4, 64);
}
LinearScratch scratch_of(int64_t rows, int64_t cols) {
  const int64_t most = std::min(rows, kRowBlock);
  const int64_t units = round_to(cols, 4);  // whole cells of any type
  return {round_to(most * units * 4, 64), rows_bytes(most, cols), cpu::linear_scratch_bytes(most)};
}
// Scratch on tiles: at most 2 bytes a column.
LinearScratch scratch_on_tiles(int64_t rows, int64_t cols) {
  const int64_t most = std::min(rows, cpu::kAmxRowBlock);
  const int64_t tiles = most <= cpu::kAmxRows ? most : round_to(most, cpu::kAmxRows);
  return {round_to(tiles * round_to(cols, 32) * 2, 64), rows_bytes(most, cols),
          cpu::amx_scratch_bytes(most)};
}

bool on_tiles(cpu::Units kind) {
  return kind == cpu::Units::bf16_tiles || kind == cpu::Units::i8_tiles;
}
bool is_i8(cpu::Units kind) {
  return kind == cpu::Units::i8 || kind == cpu::Units::i16_pairs || kind == cpu::Units::i8_tiles;
}

// Columns of one unit.
int64_t columns_of(cpu::Units kind) {
  switch (kind) {
    case cpu::Units::f32:
    case cpu::Units::f32_rounded:
      return 1;
    case cpu::Units::i8:
    case cpu::Units::i8_tiles:
      return 4;
    default:
      return 2;
  }
}

// Rows that are multiplied at a time: at most a block, in blocks of about one size.
int64_t rows_per_block(int64_t rows, bool tiles) {
  const int64_t blocks = ceil_div(rows, tiles ? cpu::kAmxRowBlock : kRowBlock);
  return blocks <= 1 ? rows
                     : round_to(ceil_div(rows, blocks), tiles ? 2 * cpu::kAmxRows : kTileRows);
}

// Rows that are packed together. AMX tiles are whole, but for a few rows; others are of one size,
// as far as possible: 20 rows are 10 and 10.
int64_t rows_per_tile(int64_t rows, bool tiles) {
  if (tiles) return std::min(rows, cpu::kAmxRows);
  return ceil_div(rows, rows <= cpu::kFewRows ? 1 : ceil_div(rows, kTileRows));
}

// Panels of few rows side by side: as many as there are registers for the sums.
int64_t streams_on_tiles(int64_t rows) {
  if (rows > cpu::kAmxFewRows) return 0;
  return rows <= cpu::kAmxRows ? kStreamedPanels : rows <= 2 * cpu::kAmxRows ? 2 : 1;
}

// With few rows (streams > 0) each chunk is one step, so that the tiles of all rows lie together.
cpu::TileChunks tile_chunks(const cpu::LinearJob& job) {
  const int64_t steps = job.units / 16, unit = job.block_scales != nullptr ? 4 : 1;
  if (job.streams > 0) return {steps, 1, steps};
  return {steps, unit, ceil_div(ceil_div(steps, unit), cpu::kAmxChunkSteps / unit)};
}

// Number of the places that Ops::linear counts.
int64_t places_of(const cpu::LinearJob& job) {
  if (job.tiles ? job.streams == 0 : job.rows > cpu::kFewRows) return job.panels;
  const int64_t streams = job.tiles ? job.streams : kStreamedPanels;
  return round_to(job.panels, streams) + streams;
}

// Panels at a time on tiles, with many rows: groups of about one size, some for each thread. Their
// quarters are whole pairs.
int64_t panels_with_many_rows(const cpu::LinearJob& job, int threads) {
  const int64_t rows = round_to(job.rows, 2 * cpu::kAmxRows);
  const int64_t most = std::min(cpu::kAmxPanels, cpu::kAmxPanelRows / rows / 8 * 8);
  const int64_t panels = ceil_div(job.panels, threads);
  return std::min(most, round_to(ceil_div(panels, ceil_div(panels, most)), 8));
}

int64_t panels_at_a_time(const cpu::LinearJob& job, int threads) {
  if (!job.tiles) return job.rows <= 4 * kTileRows ? kStreamedPanels : kReusedPanels;
  if (job.streams == 0) return panels_with_many_rows(job, threads);
  // Some of each stream, as steps run on from one to the next, where there are enough for that.
  const int64_t each = job.panels / threads / (4 * job.streams);
  return std::clamp<int64_t>(each, 1, 4) * job.streams;
}

// Returns the members of a job that are the same for all blocks of rows.
cpu::LinearJob job_of(cpu::Units kind, const Weight& w, const float* bias, Tensor y) {
  const DType dtype = w.format.dtype;
  cpu::LinearJob job;
  job.pairs = kind == cpu::Units::bf16_pairs;
  job.tiles = on_tiles(kind);
  job.cell_units = cell_cols(dtype) / columns_of(kind);
  job.units = ceil_div(w.cols, cell_cols(dtype)) * job.cell_units;
  if (job.tiles) job.units = round_to(job.units, 16);
  job.weight = w.data;
  job.dtype = dtype;
  job.panel_bytes = panel_bytes(dtype, w.cols);
  job.panels = w.rows / kPanelRows;
  job.row_scales = w.format.scales == ScaleKind::per_row ? w.scales : nullptr;
  job.block_scales = w.format.scales == ScaleKind::per_block ? w.scales : nullptr;
  job.blocks = ceil_div(w.cols, w.format.scale_cols);
  job.bias = bias;
  job.y_stride = y.stride;
  return job;
}

}  // namespace

int64_t linear_workspace(int64_t rows, int64_t cols, int threads) {
  return std::max(scratch_of(rows, cols).bytes(threads),
                  scratch_on_tiles(rows, cols).bytes(threads));
}

void CpuKernels::linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  check_linear(x, w, y);
  if (is_grouped(w.format)) return grouped_linear(x, w, bias, y);
  const cpu::Units kind = input_units(ops_, compute_, w.format.dtype);
  cpu::LinearJob job = job_of(kind, w, bias, y);
  job.fetch_into_l1 = fetch_into_l1_;
  const LinearScratch sizes =
      job.tiles ? scratch_on_tiles(x.rows, x.cols) : scratch_of(x.rows, x.cols);
  std::byte* scratch_at = scratch(sizes.bytes(pool_.size()));
  const int64_t block = rows_per_block(x.rows, job.tiles);
  auto* packed = reinterpret_cast<uint32_t*>(scratch_at);
  auto* scales = reinterpret_cast<float*>(scratch_at + sizes.packed);
  const int64_t group_cols =
      job.block_scales != nullptr ? w.format.scale_cols : std::max<int64_t>(x.cols, 1);
  const int64_t groups = ceil_div(x.cols, group_cols);  // of columns, with a scale each
  auto* offsets = reinterpret_cast<int32_t*>(scales + block * groups);
  std::byte* threads = scratch_at + sizes.packed + sizes.rows;
  job.x = packed;
  if (is_i8(kind) || w.format.quantized_input) job.x_scales = scales;
  if (is_i8(kind)) job.x_offsets = offsets;
  for (int64_t first = 0; first < x.rows; first += block) {
    job.rows = std::min(block, x.rows - first);
    job.y = y.row<float>(first);
    job.tile_rows = rows_per_tile(job.rows, job.tiles);
    if (job.tiles) job.streams = streams_on_tiles(job.rows);
    if (job.tiles) job.chunks = tile_chunks(job);
    const int64_t tiles = ceil_div(job.rows, job.tile_rows);
    pool_.parallel_for(tiles, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = tile * job.tile_rows;
        const int64_t rows = std::min(job.tile_rows, job.rows - row);
        ops_.pack_rows({x.row<float>(first + row), x.stride, rows, x.cols, kind, columns_of(kind),
                        job.units, job.tiles ? packed : packed + row * job.units,
                        job.x_scales != nullptr ? scales + row * groups : nullptr, group_cols,
                        job.x_offsets != nullptr ? offsets + row : nullptr,
                        job.tiles ? job.tile_rows : 0, tile, tiles, job.chunks,
                        job.dtype == DType::f8_e4m3});
      }
    });
    pool_.parallel_for(places_of(job), panels_at_a_time(job, pool_.size()),
                       [&](int64_t begin, int64_t end, int worker) {
                         ops_.linear(job, begin, end, threads + worker * sizes.thread);
                       });
  }
}

}  // namespace sluice
