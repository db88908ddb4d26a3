#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
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

// One panel of source rows (fewer than 16 at a tensor's end), columns [col, col + cols), with the
// scales of its rows.
void encode_panel(const cpu::Ops& ops, const EncodeArgs& a, int64_t row, int64_t col, int64_t cols,
                  const float* scales, cpu::EncodeSums& sums) {
  const Weight& to = a.to;
  cpu::EncodeJob job;
  job.source = a.source + row * a.source_stride + col * dtype_bytes(a.stored);
  job.source_stride = a.source_stride;
  job.stored = a.stored;
  job.rows = std::min(kPanelRows, a.rows - row);
  job.cols = cols;
  job.dtype = to.format.dtype;
  job.scales = scales;
  job.packed = to.format.layout == WeightLayout::packed;
  job.to_stride = to.cols * dtype_bytes(job.dtype);
  job.to = to.data + element_offset(to, a.first_row + row, col);
  ops.encode(job, &sums);
}

using Scales = std::array<float, kPanelRows>;

// A panel whose rows have one scale each, or none.
void encode_panel_by_rows(const cpu::Ops& ops, const EncodeArgs& a, int64_t row,
                          cpu::EncodeSums& sums) {
  Scales scales;
  scales.fill(1.0f);
  const int64_t rows = std::min(kPanelRows, a.rows - row);
  for (int64_t r = 0; r < rows && a.group != ScaleGroup::none; ++r) {
    float amax = a.tensor_amax;
    if (a.group == ScaleGroup::row) {
      const std::byte* from = a.source + (row + r) * a.source_stride;
      amax = magnitude(ops.largest(from, a.stored, a.to.cols), a.stored);
    }
    scales[static_cast<size_t>(r)] = code_scale(a.to.format.dtype, amax);
  }
  if (a.group != ScaleGroup::none) {
    const bool packed = a.to.format.layout == WeightLayout::packed;
    std::copy_n(scales.data(), packed ? kPanelRows : rows, a.to.scales + a.first_row + row);
  }
  encode_panel(ops, a, row, 0, a.to.cols, scales.data(), sums);
}

// 128 rows (fewer at a tensor's end), block by block, so that the second pass over a block finds
// it in L1.
void encode_blocks(const cpu::Ops& ops, const EncodeArgs& a, int64_t row, cpu::EncodeSums& sums) {
  const DType codes = a.to.format.dtype;
  const int64_t wide = a.to.format.scale_cols, blocks = ceil_div(a.to.cols, wide);
  const int64_t end = std::min(row + kScaleBlock, a.rows);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t col = b * wide, cols = std::min(wide, a.to.cols - col);
    uint32_t bits = 0;
    for (int64_t r = row; r < end; ++r) {
      const std::byte* from = a.source + r * a.source_stride + col * dtype_bytes(a.stored);
      bits = std::max(bits, ops.largest(from, a.stored, cols));
    }
    Scales scales;
    scales.fill(code_scale(codes, magnitude(bits, a.stored)));
    for (int64_t r = row; r < end; r += kPanelRows) {
      a.to.scales[(a.first_row + r) / kPanelRows * blocks + b] = scales[0];
      encode_panel(ops, a, r, col, cols, scales.data(), sums);
    }
  }
}

}  // namespace

EncodeStats CpuEncoder::encode(const EncodeArgs& a) const {
  if (is_grouped(a.to.format)) return encode_reference(a);  // a copy that memory bounds
  check_encode(a);
  cpu::EncodeSums sums;
  if (a.group == ScaleGroup::block) {
    for (int64_t row = 0; row < a.rows; row += kScaleBlock) encode_blocks(ops_, a, row, sums);
  } else {
    for (int64_t row = 0; row < a.rows; row += kPanelRows) encode_panel_by_rows(ops_, a, row, sums);
  }
  EncodeStats stats;
  stats.error_squares = sums.error_squares;
  stats.value_squares = sums.value_squares;
  stats.max_error = sums.max_error;
  stats.not_finite = sums.not_finite;
  stats.elements = a.rows * a.to.cols;
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

}  // namespace sluice
