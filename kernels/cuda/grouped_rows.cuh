// Rows of a weight in groups (quant/groups.h), code by code.
#pragma once

#include <algorithm>

#include "kernels/cuda/simt.h"
#include "quant/groups.h"

namespace sluice::cuda {

// The planes of a weight.
struct Planes {
  const uint8_t* codes;
  int64_t row_bytes;
  const float* row_scales;  // or null
  const std::byte* scales;  // of grouped codes, as all up to the order
  const std::byte* zeros;   // or null
  const float* outers;
  const float* values;        // of codes
  const float* scale_values;  // of scales
  DType scale_type, zero_type;
  bool adds_zeros;
  int bits, zero_base;
  CodeTable table;
  Outer outer;
  int outer_groups, row_outers;
  const int32_t* order;  // or null
  int cols, group_cols, groups;
};

inline Planes planes_of(const Weight& w) {
  return {reinterpret_cast<const uint8_t*>(w.data),
          grouped_row_bytes(w.format, w.cols),
          row_scales(w),
          w.group_scales,
          w.zeros,
          w.outers,
          w.tables,
          w.tables == nullptr ? nullptr : scale_values(w.format, w.tables),
          w.format.scale_type,
          w.format.zero_type,
          w.format.adds_zeros,
          w.format.bits,
          w.format.zero_base,
          w.format.table,
          w.format.outer,
          static_cast<int>(w.format.outer_groups),
          static_cast<int>(outers_of(w.format, w.cols)),
          w.order,
          static_cast<int>(w.cols),
          static_cast<int>(std::min(group_cols(w.format), std::max<int64_t>(w.cols, 1))),
          static_cast<int>(groups_of(w.format, w.cols))};
}

// Codes of one row, and what groups of them are multiplied by: value = scale * code - min.
template <class Kind>
struct Row {
  static constexpr BlockLayout kLayout = Kind::kLayout;
  static constexpr int kGroups = kLayout.cols / kLayout.group_cols;
  __device__ Row(const Planes& p, int64_t row)
      : blocks(p.codes + row * p.row_bytes),
        of_row(p.row_scales == nullptr ? 1 : p.row_scales[row]) {}
  __device__ int code(int c) const {
    return Kind::code(blocks + c / kLayout.cols * kLayout.bytes, c % kLayout.cols);
  }
  __device__ float scale(int g) const {
    return Kind::scale(blocks + g / kGroups * kLayout.bytes, g % kGroups);
  }
  __device__ float min(int g) const {
    return Kind::min(blocks + g / kGroups * kLayout.bytes, g % kGroups);
  }
  __device__ float value(int c) const {
    const int g = c / kLayout.group_cols;
    return (scale(g) * static_cast<float>(code(c)) - min(g)) * of_row;
  }
  const uint8_t* blocks;
  float of_row;  // multiplies last
};

struct GroupedCodes {};
template <>
struct Row<GroupedCodes> {
  __device__ Row(const Planes& planes, int64_t at)
      : p(planes),
        row(at),
        words(reinterpret_cast<const uint32_t*>(planes.codes + row * planes.row_bytes)),
        first_group(row * planes.groups) {}
  __device__ float code(int c) const {
    const int code = run_code(words + c / kRunCols * p.bits, 1, p.bits, c % kRunCols);
    return code_value(p.table, p.values, code);
  }
  __device__ float base() const { return static_cast<float>(p.zero_base); }
  __device__ float stored(int g) const {
    return stored_zero(p.zeros, p.zero_type, first_group + g);
  }
  __device__ float zero(int g) const {
    if (p.table != CodeTable::integers) return 0;
    return p.zeros == nullptr ? base() : stored(g) + base();
  }
  __device__ float scale(int g) const {
    float scale = stored_scale(p.scales, p.scale_type, p.scale_values, first_group + g);
    if (p.outer != Outer::none) {
      const int64_t at =
          p.outer_groups == 0 ? row / kPanelRows : row * p.row_outers + g / p.outer_groups;
      scale = with_outer(scale, p.outer, p.outers[at]);
    }
    return p.scale_type == DType::u8 ? scale + p.scale_values[kScaleValues] : scale;
  }
  __device__ float min(int g) const {
    return p.adds_zeros ? scale(g) * base() - stored(g) : scale(g) * zero(g);
  }
  __device__ float value(int c) const {
    const int g = c / p.group_cols;
    return p.adds_zeros ? (code(c) - base()) * scale(g) + stored(g)
                        : (code(c) - zero(g)) * scale(g);
  }
  const Planes& p;
  int64_t row;
  const uint32_t* words;
  int64_t first_group;
  float of_row = 1;
};

// Calls body(Kind()) for the weight's codes.
template <class Body>
void with_kind(DType type, Body&& body) {
  if (!with_block(type, body)) body(GroupedCodes());
}

}  // namespace sluice::cuda
