#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "quant/encode_blocks.h"
#include "quant/encode_groups.h"
#include "quant/float8.h"
#include "quant/groups.h"

namespace sluice {
namespace {

float magnitude(uint32_t bits, DType stored) {
  switch (stored) {
    case DType::f16:
      return f16_to_float(static_cast<uint16_t>(bits));
    case DType::bf16:
      return bf16_to_float(static_cast<uint16_t>(bits));
    default:
      return std::bit_cast<float>(bits);
  }
}

// Columns of a panel that are brought together at a time, where the source has them elsewhere.
constexpr int64_t kGathered = kScaleBlock;
struct Gathered {
  alignas(64) std::array<std::byte, kPanelRows * kGathered * sizeof(double)> bytes;
};

// Some columns of some rows of the source, row after row.
struct Rows {
  const std::byte* first = nullptr;
  int64_t stride = 0;
};

// Returns whether rows of the source lie as the vector functions take them.
bool lie_in_rows(const EncodeArgs& a, int64_t row, int64_t rows) {
  const bool one_run = a.run_rows == 0 || row / a.run_rows == (row + rows - 1) / a.run_rows;
  return a.columns_lie_together() && one_run;
}

template <class Element>
void gather(const EncodeArgs& a, int64_t row, int64_t rows, int64_t col, int64_t cols,
            std::byte* to) {
  std::array<const std::byte*, kPanelRows> from;
  for (int64_t r = 0; r < rows; ++r)
    from[static_cast<size_t>(r)] = a.row(row + r) + col * a.element_stride();
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + (r * kGathered + c) * static_cast<int64_t>(sizeof(Element)),
                  from[static_cast<size_t>(r)] + c * a.element_stride(), sizeof(Element));
    }
  }
}

// Columns [col, col + cols) of the source's rows, at most kGathered where they have to be gathered.
Rows rows_of(const EncodeArgs& a, int64_t row, int64_t rows, int64_t col, int64_t cols,
             Gathered& memory) {
  const int64_t element = dtype_bytes(a.stored);
  if (lie_in_rows(a, row, rows)) return {a.row(row) + col * element, a.source_stride};
  std::byte* to = memory.bytes.data();
  if (element == 8) gather<uint64_t>(a, row, rows, col, cols, to);
  if (element == 4) gather<uint32_t>(a, row, rows, col, cols, to);
  if (element == 2) gather<uint16_t>(a, row, rows, col, cols, to);
  return {to, kGathered * element};
}

// One panel of source rows (fewer than 16 at a tensor's end), columns [col, col + cols) of the
// source, with the scales of its rows.
void encode_panel(const cpu::Ops& ops, const EncodeArgs& a, int64_t row, int64_t col, int64_t cols,
                  const float* scales, cpu::EncodeSums& sums) {
  const Weight& to = a.to;
  const int64_t rows = std::min(kPanelRows, a.rows - row);
  const int64_t step = lie_in_rows(a, row, rows) ? cols : kGathered;
  Gathered memory;
  for (int64_t c = col; c < col + cols; c += step) {
    const int64_t count = std::min(step, col + cols - c);
    const Rows source = rows_of(a, row, rows, c, count, memory);
    cpu::EncodeJob job;
    job.source = source.first;
    job.source_stride = source.stride;
    job.stored = a.stored;
    job.rows = rows;
    job.cols = count;
    job.dtype = to.format.dtype;
    job.scales = scales;
    job.packed = to.format.layout == WeightLayout::packed;
    job.to_stride = to.cols * dtype_bytes(job.dtype);
    job.to = to.data + element_offset(to, a.first_row + row, a.first_col + c);
    ops.encode(job, &sums);
  }
}

using Scales = std::array<float, kPanelRows>;

// The scales of a panel whose rows have one each, or none.
Scales scales_of(const cpu::Ops& ops, const EncodeArgs& a, int64_t row) {
  Scales scales;
  scales.fill(1.0f);
  const int64_t rows = std::min(kPanelRows, a.rows - row);
  for (int64_t r = 0; r < rows && a.group != ScaleGroup::none; ++r) {
    float& scale = scales[static_cast<size_t>(r)];
    if (a.group == ScaleGroup::row && a.row_scales != nullptr) {
      scale = a.row_scales[row + r];
    } else if (a.group == ScaleGroup::row) {
      uint32_t bits = ops.largest(a.row(row + r), a.stored, a.to.cols);
      scale = code_scale(a.to.format.dtype, magnitude(bits, a.stored));
    } else {
      scale = code_scale(a.to.format.dtype, a.tensor_amax);
    }
  }
  return scales;
}

void encode_panel_by_rows(const cpu::Ops& ops, const EncodeArgs& a, int64_t row, int64_t col,
                          int64_t cols, cpu::EncodeSums& sums) {
  const Scales scales = scales_of(ops, a, row);
  if (a.group != ScaleGroup::none && a.first_col + col == 0) {
    const bool packed = a.to.format.layout == WeightLayout::packed;
    std::copy_n(scales.data(), packed ? kPanelRows : std::min(kPanelRows, a.rows - row),
                a.to.scales + a.first_row + row);
  }
  encode_panel(ops, a, row, col, cols, scales.data(), sums);
}

// 128 rows (fewer at a tensor's end), block by block, so that the second pass over a block finds
// it in L1.
void encode_blocks(const cpu::Ops& ops, const EncodeArgs& a, int64_t row, cpu::EncodeSums& sums) {
  const DType codes = a.to.format.dtype;
  const int64_t wide = a.to.format.scale_cols, blocks = ceil_div(a.to.cols, wide);
  const int64_t end = std::min(row + kScaleBlock, a.rows);
  Gathered memory;
  for (int64_t col = 0; col < a.cols(); col += wide) {
    const int64_t cols = std::min(wide, a.cols() - col);
    uint32_t bits = 0;
    for (int64_t panel = row; panel < end; panel += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, end - panel);
      const Rows source = rows_of(a, panel, rows, col, cols, memory);
      for (int64_t r = 0; r < rows; ++r)
        bits = std::max(bits, ops.largest(source.first + r * source.stride, a.stored, cols));
    }
    Scales scales;
    scales.fill(code_scale(codes, magnitude(bits, a.stored)));
    for (int64_t r = row; r < end; r += kPanelRows) {
      const int64_t block = (a.first_col + col) / wide;
      a.to.scales[(a.first_row + r) / kPanelRows * blocks + block] = scales[0];
      encode_panel(ops, a, r, col, cols, scales.data(), sums);
    }
  }
}

// Blocks of GGUF, panel by panel. Statistics are taken of rows that are in a cache.
EncodeStats encode_panels_of_blocks(const cpu::Ops& ops, const EncodeArgs& a) {
  check_blocks(a);
  const int64_t row_bytes = grouped_row_bytes(a.to.format, a.to.cols);
  cpu::InterleaveJob job{.layout = block_layout(a.stored),
                         .blocks = a.to.cols / block_cols(a.to.format)};
  job.to = reinterpret_cast<uint8_t*>(a.to.data) + a.first_row * row_bytes;
  EncodeStats stats;
  stats.elements = a.rows * a.to.cols;
  auto next = panel_of_blocks(a, 0);
  for (int64_t first = 0; first < a.rows; first += kPanelRows, job.to += row_bytes * kPanelRows) {
    const auto rows = std::exchange(next, panel_of_blocks(a, first + kPanelRows));
    job.rows = rows.data();
    job.next = next.back() != nullptr ? next.data() : rows.data();
    if (rows.back() != nullptr) {
      ops.interleave(job);
    } else {
      interleave_blocks(a.stored, rows, job.blocks, job.to);
    }
    for (const uint8_t* row : rows)
      if (row != nullptr) stats.not_finite += not_finite_cols(a.stored, row, job.blocks);
  }
  return stats;
}

}  // namespace

EncodeStats CpuEncoder::encode(const EncodeArgs& a) const {
  if (is_quantized(a)) {
    const bool panels = is_block(a.stored) && a.to.format.layout == WeightLayout::packed;
    return panels ? encode_panels_of_blocks(ops_, a) : encode_quantized(a, ops_.pack_codes);
  }
  if (is_integer_vector(a.stored)) return encode_reference(a);  // a copy that memory bounds
  if (makes_groups(a)) return encode_groups(a);
  check_encode(a);
  cpu::EncodeSums sums;
  if (a.group == ScaleGroup::block) {
    for (int64_t row = 0; row < a.rows; row += kScaleBlock) encode_blocks(ops_, a, row, sums);
  } else {
    // Elements of neighbouring rows may share cache lines: then a few columns of all rows at a
    // time.
    const int64_t step = a.columns_lie_together() ? std::max<int64_t>(a.cols(), 1) : kGathered;
    for (int64_t col = 0; col == 0 || col < a.cols(); col += step) {
      for (int64_t row = 0; row < a.rows; row += kPanelRows)
        encode_panel_by_rows(ops_, a, row, col, std::min(step, a.cols() - col), sums);
    }
  }
  EncodeStats stats;
  stats.error_squares = sums.error_squares;
  stats.value_squares = sums.value_squares;
  stats.max_error = sums.max_error;
  stats.not_finite = sums.not_finite;
  stats.elements = a.rows * a.cols();
  return stats;
}

float CpuEncoder::absolute_max(const std::byte* source, DType stored, int64_t source_stride,
                               int64_t rows, int64_t cols) const {
  uint32_t bits = 0;
  for (int64_t r = 0; r < rows; ++r) {
    bits = std::max(bits, ops_.largest(source + r * source_stride, stored, cols));
  }
  return magnitude(bits, stored);
}

void CpuEncoder::order_columns(const Weight& to, int64_t first_row, int64_t rows,
                               const int32_t* order) const {
  sluice::order_columns(to, first_row, rows, order, ops_.order_codes);
}

}  // namespace sluice
