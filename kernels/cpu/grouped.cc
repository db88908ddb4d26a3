#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/grouped_sum.h"
#include "quant/float8.h"
#include "quant/groups.h"

namespace sluice {
namespace {

using cpu::kTileRows;

// Rows that share decoded codes: whole tiles of 8 and of 12 rows.
constexpr int64_t kBlockRows = cpu::kRowBlock;
static_assert(kBlockRows % 24 == 0);
constexpr int64_t kFewestGroupCols = 8;
// Segments of a block of which there is room for starts, where x is bytes.
constexpr int64_t most_starts(cpu::GroupedInputs bytes) {
  return (cpu::whole_words(cpu::GroupedInputs::whole_pairs) - cpu::whole_words(bytes)) / 4;
}

static_assert(cpu::kBlockCols == kSumCols);

// Segments of a block of integers, at most.
int64_t segments_of(int64_t group_cols) {
  if (group_cols % kSumCols == 0) return 1;
  return kSumCols / group_cols + (kSumCols % group_cols == 0 ? 0 : 2);
}

// Scratch of one call, in order: x packed, and what sums of bytes start with; sums of the inputs of
// each group or segment; factors of blocks of integers; x in the weight's order of columns, if it
// has one; each thread's part.
struct Scratch {
  int64_t packed;
  int64_t sums;
  int64_t factors;
  int64_t ordered;
  int64_t thread;
  int64_t bytes(int threads) const { return packed + sums + factors + ordered + threads * thread; }
};
Scratch scratch_of(int64_t rows, int64_t cols, int64_t segments) {
  const int64_t most = std::min(rows, kBlockRows), blocks = ceil_div(cols, kSumCols);
  const int64_t all = blocks * segments;
  return {round_to(most * blocks * kSumCols * 4, 64), round_to(most * all * 4, 64),
          round_to(most * blocks * 4, 64), round_to(most * cols * 4, 64),
          round_to(cpu::grouped_scratch_bytes(most), 64)};
}

// Returns what makes codes of a format unsigned bytes, where these are decoded in registers
// (kernels/cpu/simd/few_rows.h).
std::optional<int> zero_of_bytes(const WeightFormat& format) {
  if (is_block(format.dtype)) {
    const int zero = block_layout(format.dtype).zero;
    return zero < 0 ? std::nullopt : std::optional(zero);
  }
  if (format.dtype != DType::u8) return std::nullopt;
  if (format.table == CodeTable::e2m1) return 12;
  return format.bits == 4 || format.bits == 8 ? std::optional(0) : std::nullopt;
}

// Returns the largest magnitude of a format's codes, or more.
int64_t most_code(const WeightFormat& format) {
  if (is_block(format.dtype)) return block_layout(format.dtype).most_code;
  if (format.dtype != DType::u8) return 255;
  return format.table == CodeTable::e2m1 ? 12 : (1 << format.bits) - 1;
}

// Returns GroupedJob::narrow_words: segments are whole groups, of sizes that kernels have.
int64_t narrow_words(const WeightFormat& format, int64_t group_cols) {
  if (format.quantized_input) return 0;
  constexpr int64_t kMostWhole = int64_t{255} << 14;  // of inputs with bf16's eight bits
  const bool fits = group_cols * most_code(format) * kMostWhole <= INT32_MAX;
  return fits && (group_cols == 16 || group_cols == 32) ? group_cols / 4 : 0;
}

// Rows that are packed together: of one size, as far as possible.
int64_t rows_per_tile(int64_t rows) {
  return ceil_div(rows, rows <= cpu::kFewRows ? 1 : ceil_div(rows, kTileRows));
}

cpu::GroupedJob job_of(const Weight& w, const float* bias, Tensor y) {
  const WeightFormat& format = w.format;
  cpu::GroupedJob job;
  job.integers = has_integer_codes(format);
  job.rounded = job.integers && format.quantized_input;
  job.codes = w.data;
  job.type = format.dtype;
  job.block_cols = block_cols(format);
  job.block_bytes = block_bytes(format) * kPanelRows;
  const bool floats = format.dtype == DType::u8 && format.table == CodeTable::e2m1;
  const BlockTables tables = block_tables(floats ? DType::e2m1_e8m0 : format.dtype);
  job.grid = tables.grid;
  job.code_values = tables.values;
  job.row_scales = row_scales(w);
  job.table = format.table;
  job.mins = is_block(format.dtype) ? block_layout(format.dtype).mins
                                    : format.table == CodeTable::integers;
  job.panels = w.rows / kPanelRows;
  job.cols = round_to(w.cols, job.block_cols);
  job.group_cols = std::min(group_cols(format), job.cols);
  job.groups = groups_of(format, w.cols);
  job.segments = segments_of(job.group_cols);
  job.bits = format.bits;
  job.scales = w.group_scales;
  job.scale_type = format.scale_type;
  if (w.tables != nullptr) job.scale_values = scale_values(format, w.tables);
  job.outer = format.outer;
  job.outer_groups = format.outer_groups;
  job.outers = w.outers;
  job.zeros = w.zeros;
  job.zero_type = format.zero_type;
  job.adds_zeros = format.adds_zeros;
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
  return scratch_of(rows, cols, segments_of(kFewestGroupCols)).bytes(threads);
}

void CpuKernels::choose_inputs(const WeightFormat& format, cpu::GroupedJob& job) const {
  job.zero = 0;
  job.narrow_words = 0;
  job.inputs = cpu::GroupedInputs::f32;
  if (compute_ != Compute::bf16 && !job.rounded) return;
  if (!job.integers) {
    if (ops_.pair_units == cpu::Units::bf16_pairs) job.inputs = cpu::GroupedInputs::bf16_pairs;
    return;
  }
  job.inputs = cpu::GroupedInputs::whole_pairs;
  if (job.rows > ops_.byte_rows) return;
  std::optional<int> zero = zero_of_bytes(format);
  if (job.rows > cpu::kByteRows) {
    zero = std::nullopt;
    if (job.group_cols % 4 == 0) zero = job.mins ? 0 : 128;
    job.narrow_words = narrow_words(format, job.group_cols);
  } else if (zero && *zero + most_code(format) > ops_.most_byte) {
    zero = std::nullopt;
  }
  if (!zero) return;
  const auto bytes = job.rounded ? cpu::GroupedInputs::one_byte : cpu::GroupedInputs::whole_bytes;
  if (*zero != 0 && job.segments > most_starts(bytes)) return;  // no room for starts
  job.inputs = bytes;
  job.zero = *zero;
}

// Packs a row of job.rows as integers.
void CpuKernels::pack_whole_row(const float* x, int64_t cols, int64_t row,
                                const cpu::GroupedJob& job, const cpu::WholeJob& to) const {
  cpu::WholeJob one = to;
  one.x = x;
  one.cols = cols;
  one.kind = job.inputs;
  one.rounded = job.rounded;
  one.paired_nibbles = job.type == DType::u8 && job.bits == 4 && job.rows <= cpu::kByteRows;
  one.rows = job.rows;
  one.group_cols = job.group_cols;
  one.segments = job.segments;
  one.zero = job.zero;
  one.out += row * cpu::whole_words(job.inputs);
  one.factors += row;
  one.sums += row * job.segments;
  if (one.starts != nullptr) one.starts += row * job.segments * 4;
  ops_.pack_whole(one);
}

void CpuKernels::grouped_linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  cpu::GroupedJob job = job_of(w, bias, y);
  // bfloat16 compute rounds values of a table, as it does inputs.
  std::array<float, kCodeValues> values{};
  if (w.format.table == CodeTable::own) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          compute_ == Compute::bf16 ? bf16_to_float(float_to_bf16(w.tables[i])) : w.tables[i];
    job.values = values.data();
    job.wide = compute_ != Compute::bf16;
  }
  const Scratch sizes = scratch_of(x.rows, x.cols, segments_of(job.group_cols));
  std::byte* at = scratch(sizes.bytes(pool_.size()));
  const auto take = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
  auto* packed = reinterpret_cast<uint32_t*>(take(sizes.packed));
  auto* sums = reinterpret_cast<float*>(take(sizes.sums));
  auto* factors = reinterpret_cast<float*>(take(sizes.factors));
  auto* ordered = reinterpret_cast<float*>(take(sizes.ordered));
  job.x = packed;
  job.x_sums = sums;
  job.factors = factors;
  for (int64_t first = 0; first < x.rows; first += kBlockRows) {
    job.rows = std::min(kBlockRows, x.rows - first);
    choose_inputs(w.format, job);
    const bool bytes =
        job.inputs == cpu::GroupedInputs::whole_bytes || job.inputs == cpu::GroupedInputs::one_byte;
    auto* starts = reinterpret_cast<int32_t*>(packed + job.rows * ceil_div(x.cols, kSumCols) *
                                                           cpu::whole_words(job.inputs));
    job.starts = job.zero != 0 ? starts : nullptr;
    job.y = y.row<float>(first);
    Tensor in = x.rows_from(first, job.rows);
    if (w.order != nullptr) {
      const Tensor from = in;
      in = {reinterpret_cast<std::byte*>(ordered), DType::f32, job.rows, x.cols, x.cols};
      pool_.parallel_for(job.rows, 4, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row)
          for (int64_t c = 0; c < x.cols; ++c)
            in.row<float>(row)[c] = from.row<float>(row)[w.order[c]];
      });
    }
    if (bytes || job.inputs == cpu::GroupedInputs::whole_pairs) {
      const cpu::WholeJob to{.out = packed,
                             .factors = factors,
                             .sums = sums,
                             .starts = job.zero != 0 ? starts : nullptr};
      pool_.parallel_for(job.rows, 4, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row)
          pack_whole_row(in.row<float>(row), x.cols, row, job, to);
      });
    } else {
      pack_floats(in, job, packed, sums);
    }
    const int64_t streams = cpu::byte_streams(job.rows);
    const bool streamed = bytes && job.rows <= cpu::kByteRows;
    const int64_t places = streamed ? round_to(job.panels, streams) + streams : job.panels;
    pool_.parallel_for(places, cpu::kStreamedPanels, [&](int64_t begin, int64_t end, int worker) {
      ops_.grouped(job, begin, end, at + worker * sizes.thread);
    });
  }
}

// Packs rows of a product of floats, and sums their groups.
void CpuKernels::pack_floats(Tensor in, cpu::GroupedJob& job, uint32_t* packed, float* sums) const {
  const bool pairs = job.inputs == cpu::GroupedInputs::bf16_pairs;
  job.units = pairs ? job.cols / 2 : job.cols;
  job.tile_rows = rows_per_tile(job.rows);
  const int64_t tiles = ceil_div(job.rows, job.tile_rows);
  pool_.parallel_for(tiles, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * job.tile_rows;
      const int64_t rows = std::min(job.tile_rows, job.rows - first);
      for (int64_t row = first; row < first + rows; ++row)
        sum_groups(in.row<float>(row), in.cols, job.group_cols, compute_ == Compute::bf16,
                   sums + row * job.groups);
      ops_.pack_rows({.x = in.row<float>(first),
                      .stride = in.stride,
                      .rows = rows,
                      .cols = in.cols,
                      .kind = compute_ == Compute::bf16 ? ops_.pair_units : cpu::Units::f32,
                      .unit_cols = pairs ? 2 : 1,
                      .units = job.units,
                      .out = packed + first * job.units});
    }
  });
}

}  // namespace sluice
