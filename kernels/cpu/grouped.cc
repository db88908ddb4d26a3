#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "quant/float8.h"
#include "quant/groups.h"

namespace sluice {
namespace {

using cpu::kTileRows;

// Rows that share decoded codes.
constexpr int64_t kBlockRows = 132;
constexpr int64_t kFewestGroupCols = 8;

// Scratch of one call, in order: x packed; sums of the inputs of each group; x in the weight's
// order of columns, if it has one; each thread's part.
struct Scratch {
  int64_t packed;
  int64_t sums;
  int64_t ordered;
  int64_t thread;
  int64_t bytes(int threads) const { return packed + sums + ordered + threads * thread; }
};
Scratch scratch_of(int64_t rows, int64_t cols, int64_t groups) {
  const int64_t most = std::min(rows, kBlockRows), padded = round_to(cols, kRunCols);
  return {round_to(most * padded * 4, 64), round_to(most * groups * 4, 64),
          round_to(most * cols * 4, 64), round_to(cpu::grouped_scratch_bytes(most), 64)};
}

// Rows that are packed together: of one size, as far as possible.
int64_t rows_per_tile(int64_t rows) {
  return ceil_div(rows, rows <= cpu::kFewRows ? 1 : ceil_div(rows, kTileRows));
}

cpu::GroupedJob job_of(const Weight& w, bool pairs, const float* bias, Tensor y) {
  const WeightFormat& format = w.format;
  cpu::GroupedJob job;
  job.pairs = pairs;
  job.codes = w.data;
  job.type = format.dtype;
  job.block_cols = block_cols(format);
  job.block_bytes = block_bytes(format) * kPanelRows;
  const BlockTables tables = block_tables(format.dtype);
  job.grid = tables.grid;
  job.code_values = tables.values;
  job.row_scales = row_scales(w);
  job.table = format.table;
  job.mins = is_block(format.dtype) ? block_layout(format.dtype).mins
                                    : format.table == CodeTable::integers;
  job.panels = w.rows / kPanelRows;
  job.cols = round_to(w.cols, job.block_cols);
  job.units = pairs ? job.cols / 2 : job.cols;
  job.group_cols = std::min(group_cols(format), job.cols);
  job.groups = groups_of(format, w.cols);
  job.bits = format.bits;
  job.scales = w.group_scales;
  job.scale_type = format.scale_type;
  if (w.tables != nullptr) job.scale_values = scale_values(format, w.tables);
  job.outer = format.outer;
  job.outer_groups = format.outer_groups;
  job.outers = w.outers;
  job.zeros = reinterpret_cast<const std::byte*>(w.zeros);
  job.zero_base = format.zero_base;
  job.bias = bias;
  job.y_stride = y.stride;
  return job;
}

// Writes the sum of each group of columns of a row of x, in column order.
void sum_groups(const float* x, int64_t cols, int64_t group_cols, bool round, float* sums) {
  for (int64_t first = 0; first < cols; first += group_cols) {
    float sum = 0;
    for (int64_t c = first; c < std::min(first + group_cols, cols); ++c)
      sum += round ? bf16_to_float(float_to_bf16(x[c])) : x[c];
    *sums++ = sum;
  }
}

}  // namespace

int64_t grouped_workspace(int64_t rows, int64_t cols, int threads) {
  return scratch_of(rows, cols, ceil_div(cols, kFewestGroupCols)).bytes(threads);
}

void CpuKernels::grouped_linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  const cpu::Units kind = compute_ == Compute::bf16 ? ops_.pair_units : cpu::Units::f32;
  cpu::GroupedJob job = job_of(w, kind == cpu::Units::bf16_pairs, bias, y);
  // bfloat16 compute rounds values of a table, as it does inputs.
  std::array<float, kCodeValues> values{};
  if (w.format.table == CodeTable::own) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          compute_ == Compute::bf16 ? bf16_to_float(float_to_bf16(w.tables[i])) : w.tables[i];
    job.values = values.data();
    job.wide = compute_ != Compute::bf16;
  }
  const Scratch sizes = scratch_of(x.rows, x.cols, job.groups);
  std::byte* at = scratch(sizes.bytes(pool_.size()));
  auto* packed = reinterpret_cast<uint32_t*>(at);
  auto* sums = reinterpret_cast<float*>(at + sizes.packed);
  auto* ordered = reinterpret_cast<float*>(at + sizes.packed + sizes.sums);
  std::byte* threads = at + sizes.packed + sizes.sums + sizes.ordered;
  job.x = packed;
  job.x_sums = sums;
  for (int64_t first = 0; first < x.rows; first += kBlockRows) {
    job.rows = std::min(kBlockRows, x.rows - first);
    job.y = y.row<float>(first);
    job.tile_rows = rows_per_tile(job.rows);
    Tensor in = x.rows_from(first, job.rows);
    if (w.order != nullptr)
      in = {reinterpret_cast<std::byte*>(ordered), DType::f32, job.rows, x.cols, x.cols};
    pool_.parallel_for(ceil_div(job.rows, job.tile_rows), 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin * job.tile_rows; row < std::min(end * job.tile_rows, job.rows);
           ++row) {
        for (int64_t c = 0; w.order != nullptr && c < x.cols; ++c)
          in.row<float>(row)[c] = x.row<float>(first + row)[w.order[c]];
        sum_groups(in.row<float>(row), x.cols, job.group_cols, compute_ == Compute::bf16,
                   sums + row * job.groups);
      }
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = tile * job.tile_rows;
        ops_.pack_rows({.x = in.row<float>(row),
                        .stride = in.stride,
                        .rows = std::min(job.tile_rows, job.rows - row),
                        .cols = x.cols,
                        .kind = kind,
                        .unit_cols = job.pairs ? 2 : 1,
                        .units = job.units,
                        .out = packed + row * job.units});
      }
    });
    pool_.parallel_for(job.panels, cpu::kStreamedPanels,
                       [&](int64_t begin, int64_t end, int worker) {
                         ops_.grouped(job, begin, end, threads + worker * sizes.thread);
                       });
  }
}

}  // namespace sluice
