#include "quant/groups.h"

#include <algorithm>
#include <cstddef>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr int kMostBlockBytes = 256;

// Words of a run, and how far they are apart.
struct Run {
  const uint32_t* words;
  int64_t apart;
};
Run run_of(const Weight& w, int64_t row, int64_t run) {
  const auto* words = reinterpret_cast<const uint32_t*>(w.data);
  const int64_t bits = w.format.bits, runs = ceil_div(w.cols, kRunCols);
  if (w.format.layout == WeightLayout::rows) return {words + (row * runs + run) * bits, 1};
  return {words + (row / kPanelRows * runs + run) * bits * kPanelRows + row % kPanelRows,
          kPanelRows};
}

// A row's block as it is stored; `copy` has room for one.
const uint8_t* block_of(const Weight& w, int64_t row, int64_t block, uint8_t* copy) {
  const auto* data = reinterpret_cast<const uint8_t*>(w.data);
  const int64_t bytes = block_bytes(w.format), blocks = w.cols / block_cols(w.format);
  if (w.format.layout == WeightLayout::rows) return data + (row * blocks + block) * bytes;
  take_block(w.format.dtype, data + (row / kPanelRows * blocks + block) * bytes * kPanelRows,
             static_cast<int>(row % kPanelRows), copy);
  return copy;
}

// An element is (code - zero) * scale, or with zeros that are added (code - base) * scale + zero.
struct GroupNumbers {
  float scale, base, zero;
};
GroupNumbers numbers_of(const Weight& w, int64_t row, int64_t group) {
  const WeightFormat& f = w.format;
  const auto place = [&](int64_t each, int64_t i) {
    return f.layout == WeightLayout::rows
               ? row * each + i
               : (row / kPanelRows * each + i) * kPanelRows + row % kPanelRows;
  };
  const int64_t at = place(groups_of(f, w.cols), group);
  const float* own = w.tables == nullptr ? nullptr : scale_values(f, w.tables);
  float scale = stored_scale(w.group_scales, f.scale_type, own, at);
  if (f.outer != Outer::none) {
    const int64_t outer = f.outer_groups == 0 ? row / kPanelRows
                                              : place(outers_of(f, w.cols), group / f.outer_groups);
    scale = with_outer(scale, f.outer, w.outers[outer]);
  }
  if (f.scale_type == DType::u8) scale += own[kScaleValues];
  const auto base = static_cast<float>(f.table != CodeTable::integers ? 0 : f.zero_base);
  if (!has_zeros(f)) return {scale, base, base};
  const float stored = stored_zero(w.zeros, f.zero_type, at);
  return {scale, base, f.adds_zeros ? stored : base + stored};
}

}  // namespace

int64_t block_cols(const WeightFormat& format) {
  return is_block(format.dtype) ? block_layout(format.dtype).cols : kRunCols;
}

int64_t block_bytes(const WeightFormat& format) {
  return is_block(format.dtype) ? block_layout(format.dtype).bytes
                                : format.bits * static_cast<int64_t>(sizeof(uint32_t));
}

int64_t grouped_row_bytes(const WeightFormat& format, int64_t cols) {
  return ceil_div(cols, block_cols(format)) * block_bytes(format);
}

int64_t group_cols(const WeightFormat& format) {
  return is_block(format.dtype) ? block_layout(format.dtype).group_cols : format.scale_cols;
}

int64_t groups_of(const WeightFormat& format, int64_t cols) {
  return ceil_div(cols, group_cols(format));
}

int64_t outers_of(const WeightFormat& format, int64_t cols) {
  return format.outer_groups > 0 ? ceil_div(groups_of(format, cols), format.outer_groups) : 0;
}

void decode_groups(const Weight& w, int64_t row, const GroupedRow& out) {
  if (!is_block(w.format.dtype)) {
    const float factor = w.format.table == CodeTable::e2m1 ? 2 : 1;
    for (int64_t c = 0; c < w.cols; ++c) {
      const Run run = run_of(w, row, c / kRunCols);
      out.codes[c] = factor * code_value(w.format.table, w.tables,
                                         run_code(run.words, run.apart, w.format.bits,
                                                  static_cast<int>(c % kRunCols)));
    }
    for (int64_t g = 0; g < groups_of(w.format, w.cols); ++g) {
      const GroupNumbers s = numbers_of(w, row, g);
      out.scales[g] = s.scale / factor;
      out.mins[g] = w.format.adds_zeros ? s.scale * s.base - s.zero : s.scale * s.zero;
    }
    return;
  }
  uint8_t copy[kMostBlockBytes];
  with_block(w.format.dtype, [&]<class Kind>(Kind) {
    constexpr BlockLayout kLayout = Kind::kLayout;
    constexpr int kGroups = kLayout.cols / kLayout.group_cols;
    for (int64_t b = 0; b < w.cols / kLayout.cols; ++b) {
      const uint8_t* block = block_of(w, row, b, copy);
      for (int c = 0; c < kLayout.cols; ++c)
        out.codes[b * kLayout.cols + c] = static_cast<float>(Kind::code(block, c));
      for (int g = 0; g < kGroups; ++g) {
        out.scales[b * kGroups + g] = Kind::scale(block, g);
        out.mins[b * kGroups + g] = Kind::min(block, g);
      }
    }
  });
}

void decode_grouped_row(const Weight& w, int64_t row, float* out) {
  if (!is_block(w.format.dtype)) {
    for (int64_t c = 0; c < w.cols; ++c) {
      const Run run = run_of(w, row, c / kRunCols);
      const GroupNumbers s = numbers_of(w, row, c / w.format.scale_cols);
      const int code =
          run_code(run.words, run.apart, w.format.bits, static_cast<int>(c % kRunCols));
      const float value = code_value(w.format.table, w.tables, code);
      out[w.order != nullptr ? w.order[c] : c] =
          w.format.adds_zeros ? (value - s.base) * s.scale + s.zero : (value - s.zero) * s.scale;
    }
    return;
  }
  uint8_t copy[kMostBlockBytes];
  const float of_row = scale_at(w, row, 0);
  with_block(w.format.dtype, [&]<class Kind>(Kind) {
    constexpr BlockLayout kLayout = Kind::kLayout;
    for (int64_t b = 0; b < w.cols / kLayout.cols; ++b) {
      const uint8_t* block = block_of(w, row, b, copy);
      for (int g = 0; g < kLayout.cols / kLayout.group_cols; ++g) {
        const float scale = Kind::scale(block, g), min = Kind::min(block, g);
        for (int c = g * kLayout.group_cols; c < (g + 1) * kLayout.group_cols; ++c) {
          const float product = scale * static_cast<float>(Kind::code(block, c));
          out[b * kLayout.cols + c] = (product - min) * of_row;
        }
      }
    }
  });
}

}  // namespace sluice
