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

// The value of a code, but for its zero.
float code_value(const WeightFormat& format, int code) {
  return format.table == CodeTable::e2m1 ? e2m1_to_float(static_cast<uint32_t>(code))
                                         : static_cast<float>(code);
}

struct ScaleAndZero {
  float scale;
  int zero;
};
ScaleAndZero scale_of(const Weight& w, int64_t row, int64_t group) {
  const int64_t groups = groups_of(w.format, w.cols);
  const int64_t at = w.format.layout == WeightLayout::rows
                         ? row * groups + group
                         : (row / kPanelRows * groups + group) * kPanelRows + row % kPanelRows;
  if (w.format.scale_type == DType::f8_e8m0)
    return {e8m0_to_float(std::to_integer<uint8_t>(w.group_scales[at])), 0};
  const uint16_t bits = reinterpret_cast<const uint16_t*>(w.group_scales)[at];
  return {w.format.scale_type == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits),
          w.zeros[at] + w.format.zero_base};
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

void decode_groups(const Weight& w, int64_t row, const GroupedRow& out) {
  if (!is_block(w.format.dtype)) {
    for (int64_t c = 0; c < w.cols; ++c) {
      const Run run = run_of(w, row, c / kRunCols);
      out.codes[c] = code_value(
          w.format, run_code(run.words, run.apart, w.format.bits, static_cast<int>(c % kRunCols)));
    }
    for (int64_t g = 0; g < groups_of(w.format, w.cols); ++g) {
      const ScaleAndZero s = scale_of(w, row, g);
      out.scales[g] = s.scale;
      out.mins[g] = s.scale * static_cast<float>(s.zero);
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
      const ScaleAndZero s = scale_of(w, row, c / w.format.scale_cols);
      const int code =
          run_code(run.words, run.apart, w.format.bits, static_cast<int>(c % kRunCols));
      out[w.order != nullptr ? w.order[c] : c] =
          (code_value(w.format, code) - static_cast<float>(s.zero)) * s.scale;
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
