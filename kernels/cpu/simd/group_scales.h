// Scales and minimums of groups, a thread's scratch for them, and the finished sums of a panel.
#pragma once

#include "kernels/cpu/simd/blocks.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;                      // bytes
constexpr int64_t kMostGroups = kGroupedCols / 8;  // whose scales are decoded at a time

// Fetches a line of stored codes ahead of those at hand: into L2, as a core has more lines on their
// way there than into L1. Two busy cores lose some of these, which are fetched again when they are
// nearer, at last into L1 (docs/benchmarks.md, "What decode depends on").
inline void fetch_ahead(const std::byte* codes) {
  __builtin_prefetch(codes + 16384, 0, 2);
  __builtin_prefetch(codes + 4096, 0, 2);
  __builtin_prefetch(codes + 1024, 0, 3);
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// A thread's scratch, of kGroupedPanels panels.
struct Scratch {
  Scratch(std::byte* at, int64_t rows)
      : cells(at),
        scales(reinterpret_cast<float*>(at + kGroupedPanels * kPanelBytes)),
        mins(scales + kGroupedPanels * kMostGroups * 16),
        totals(mins + kGroupedPanels * kMostGroups * 16),
        partial(totals + rows * 16) {}
  static constexpr int64_t kPanelBytes = kGroupedCols * 32;
  std::byte* cells;  // [panels][kPanelBytes]
  float* scales;     // [panels][kMostGroups][16]
  float* mins;
  float* totals;   // [panels][rows][16]
  float* partial;  // [rows][16], of a group that is interrupted; a second panel has none
};

// Scale and zero of kLanes rows of a group of grouped codes.
struct GroupScale {
  Vf scale, min;
};
inline Vf numbers_of(DType type, const std::byte* numbers, int64_t at) {
  if (type == DType::f32) return as_floats(load_bits(numbers + at * 4));
  const Vu halves = load_u16(numbers + at * 2);
  return type == DType::bf16 ? as_floats(halves << 16) : f16_to_float(halves);
}
inline Vf scale_as_stored(const GroupedJob& job, int64_t at) {
  switch (job.scale_type) {
    case DType::f8_e8m0:
      return e8m0_to_float(load_u8(job.scales + at));
    case DType::f8_e4m3:
      return eight_bit_floats(load_u8(job.scales + at));
    case DType::u8: {
      float of[kLanes];
      for (int i = 0; i < kLanes; ++i)
        of[i] = job.scale_values[static_cast<uint8_t>(job.scales[at + i])];
      return load(of);
    }
    default:
      return numbers_of(job.scale_type, job.scales, at);
  }
}
inline GroupScale group_scale(const GroupedJob& job, int64_t panel, int64_t group, int64_t lane) {
  const int64_t at = (panel * job.groups + group) * 16 + lane;
  Vf scale = scale_as_stored(job, at);
  if (job.outer != Outer::none) {
    Vf outer = Vf{};
    if (job.outer_groups == 0) {
      outer += job.outers[panel];
    } else {
      const int64_t each = (job.groups + job.outer_groups - 1) / job.outer_groups;
      outer = load(job.outers + (panel * each + group / job.outer_groups) * 16 + lane);
    }
    scale = job.outer == Outer::multiplies ? scale * outer : scale / outer;
  }
  if (job.scale_type == DType::u8) scale += job.scale_values[kScaleValues];
  if (job.table == CodeTable::e2m1) scale *= 0.5f;  // codes are doubled
  if (job.table != CodeTable::integers) return {scale, Vf{}};
  const Vf base = Vf{} + static_cast<float>(job.zero_base);
  if (job.zeros == nullptr) return {scale, scale * base};
  const Vf zero = job.zero_type == DType::u8 ? floats(load_u8(job.zeros + at))
                                             : numbers_of(job.zero_type, job.zeros, at);
  return {scale, job.adds_zeros ? scale * base - zero : scale * (base + zero)};
}

// Sums of a panel [rows][16], times the scale of each row, and with the bias, into y.
inline void finish_panel(const GroupedJob& job, int64_t panel, const float* totals) {
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      Vf sum = load(totals + row * 16 + lane);
      if (job.row_scales != nullptr) sum *= load(job.row_scales + panel * 16 + lane);
      if (job.bias != nullptr) sum += load(job.bias + panel * 16 + lane);
      store(job.y + row * job.y_stride + panel * 16 + lane, sum);
    }
  }
}

// Columns that a group and a block of integers have in common (kernels/grouped_sum.h).
struct Segment {
  int64_t begin, end;  // columns
  int64_t group;
};
// End of a block's columns that are in a group; padding may be in none.
inline int64_t block_end(const GroupedJob& job, int64_t block) {
  const int64_t cols = smaller(job.cols, job.groups * job.group_cols);
  return smaller((block + 1) * kBlockCols, cols);
}
// Segment from column `begin` on, which is before `end`, the block's.
inline Segment segment_from(const GroupedJob& job, int64_t begin, int64_t end) {
  const int64_t group = begin / job.group_cols;
  return {begin, smaller((group + 1) * job.group_cols, end), group};
}
// Value of a segment, of its exact sums. The product is exact, so that it may be fused.
inline Vf whole_value(Vi upper, Vi lower) {
  return fma(__builtin_convertvector(upper, Vf), splat(256), __builtin_convertvector(lower, Vf));
}
inline int64_t whole_blocks(const GroupedJob& job) {
  return (job.cols + kBlockCols - 1) / kBlockCols;
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
