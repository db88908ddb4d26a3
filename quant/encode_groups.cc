#include "quant/encode_groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "quant/float8.h"
#include "quant/group_codes.h"
#include "quant/groups.h"
#include "src/base/error.h"

namespace sluice {
namespace {

using RunFloats = std::array<float, kRunCols>;
using RunCodes = std::array<uint8_t, kRunCols>;

template <DType kStored>
float load_as_float(const std::byte* from) {
  if constexpr (kStored == DType::f64) {
    double wide;
    std::memcpy(&wide, from, sizeof wide);
    return static_cast<float>(wide);
  } else if constexpr (kStored == DType::f32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  } else {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return kStored == DType::bf16 ? bf16_to_float(half) : f16_to_float(half);
  }
}

// The first `count` of a run's columns; zeros behind them.
template <DType kStored>
void load_run(const std::byte* from, int64_t stride, int64_t count, RunFloats& out) {
  constexpr int64_t kBytes = kStored == DType::f64 ? 8 : kStored == DType::f32 ? 4 : 2;
  if (count == kRunCols && stride == kBytes) {
    for (size_t c = 0; c < kRunCols; ++c)
      out[c] = load_as_float<kStored>(from + static_cast<int64_t>(c) * kBytes);
    return;
  }
  for (int64_t c = 0; c < kRunCols; ++c)
    out[static_cast<size_t>(c)] = c < count ? load_as_float<kStored>(from + c * stride) : 0.0f;
}

float largest_finite(const float* x, int64_t count) {
  float amax = 0;
  for (int64_t c = 0; c < count; ++c) {
    const float magnitude = std::abs(x[c]);
    amax =
        magnitude > amax && magnitude < std::bit_cast<float>(kFloatInfinityBits) ? magnitude : amax;
  }
  return amax;
}

// Words of a run of codes, `apart` from one another.
void put_run(const RunCodes& codes, int bits, uint32_t* words, int64_t apart) {
  const int cols = 32 / bits;
  for (int w = 0; w < bits; ++w) {
    uint32_t word = 0;
    for (int c = 0; c < cols; ++c)
      word |= uint32_t{codes[static_cast<size_t>(w * cols + c)]} << (c % 2 * 16 + c / 2 * bits);
    words[w * apart] = word;
  }
}

// With the table known, the loop is one of vectors.
template <CodeTable kTable>
void make_codes(GroupCoding coding, const RunFloats& x, const RunFloats& scales, RunCodes& codes) {
  coding.table = kTable;
  for (size_t c = 0; c < kRunCols; ++c)
    codes[c] = static_cast<uint8_t>(group_code(coding, x[c], scales[c]));
}

// Encodes the rows of one source.
class GroupEncoder {
 public:
  explicit GroupEncoder(const EncodeArgs& args)
      : a_(args),
        format_(args.to.format),
        coding_(group_coding(format_, args.stored)),
        packed_(format_.layout == WeightLayout::packed),
        runs_(ceil_div(args.to.cols, kRunCols)),
        groups_(groups_of(format_, args.to.cols)) {
    if (format_.outer != Outer::none) outer_ = outer_scale(coding_, args.tensor_amax);
    const size_t codes = size_t{1} << format_.bits;
    for (size_t code = 0; code < std::min(codes, values_.size()); ++code)
      values_[code] = value_of(code);
  }

  EncodeStats encode() {
    put_fixed();
    const int64_t end = packed_ ? round_to(a_.rows, kPanelRows) : a_.rows;
    for (int64_t r = 0; r < end; ++r) {
      if (r >= a_.rows) {
        clear_row(r);
        continue;
      }
      switch (a_.stored) {
        case DType::f64:
          encode_row<DType::f64>(r);
          break;
        case DType::f32:
          encode_row<DType::f32>(r);
          break;
        case DType::f16:
          encode_row<DType::f16>(r);
          break;
        default:
          encode_row<DType::bf16>(r);
      }
    }
    return stats();
  }

 private:
  float value_of(size_t code) const {
    const float value = code_value(format_.table, scheme_tables(format_), static_cast<int>(code));
    return format_.table == CodeTable::integers ? value - static_cast<float>(format_.zero_base)
                                                : value;
  }

  // Planes that do not depend on a row's elements.
  void put_fixed() {
    if (a_.first_col > 0) return;
    if (a_.to.tables != nullptr && a_.first_row == 0)
      std::copy_n(scheme_tables(format_), kCodeValues, a_.to.tables);
    if (format_.outer == Outer::none) return;
    const int64_t first = a_.first_row / kPanelRows;
    const int64_t end = ceil_div(a_.first_row + a_.rows, kPanelRows);  // rows may begin in a panel
    std::fill(a_.to.outers + first, a_.to.outers + end, outer_);
  }

  uint32_t* words_of(int64_t row, int64_t run) const {
    auto* words = reinterpret_cast<uint32_t*>(a_.to.data);
    if (!packed_) return words + (row * runs_ + run) * format_.bits;
    return words + (row / kPanelRows * runs_ + run) * format_.bits * kPanelRows + row % kPanelRows;
  }
  void put_scale(int64_t row, int64_t group, uint32_t stored) const {
    const int64_t at = packed_
                           ? (row / kPanelRows * groups_ + group) * kPanelRows + row % kPanelRows
                           : row * groups_ + group;
    if (format_.scale_type == DType::f32) {
      std::memcpy(a_.to.group_scales + at * 4, &stored, sizeof stored);
    } else {
      a_.to.group_scales[at] = static_cast<std::byte>(stored);
    }
  }

  void clear_row(int64_t r) const {
    const int64_t row = a_.first_row + r, first = a_.first_col / kRunCols;
    for (int64_t run = first; run < first + ceil_div(a_.cols(), kRunCols); ++run) {
      for (int64_t w = 0; w < format_.bits; ++w)
        words_of(row, run)[w * (packed_ ? kPanelRows : 1)] = 0;
    }
    const int64_t wide = group_cols(format_), from = a_.first_col / wide;
    for (int64_t g = from; g < from + ceil_div(a_.cols(), wide); ++g) put_scale(row, g, 0);
  }

  template <DType kStored>
  void encode_row(int64_t r) {
    const int64_t stride = a_.element_stride(), cols = a_.cols();
    const int64_t wide = std::max<int64_t>(std::min(group_cols(format_), cols), kRunCols);
    RunFloats x;
    for (int64_t first = 0; first < cols; first += wide) {
      const int64_t end = std::min(first + wide, cols);
      const std::byte* from = a_.row(r);
      GroupScale scale;
      if (group_cols(format_) >= kRunCols) {
        float amax = 0;
        for (int64_t c = first; a_.row_scales == nullptr && c < end; c += kRunCols) {
          const int64_t count = std::min<int64_t>(kRunCols, end - c);
          load_run<kStored>(from + c * stride, stride, count, x);
          amax = std::max(amax, largest_finite(x.data(), kRunCols));
        }
        scale = scale_of(r, amax);
        if (a_.row_scales == nullptr || a_.first_col == 0)
          put_scale(a_.first_row + r, (a_.first_col + first) / group_cols(format_), scale.stored);
      }
      for (int64_t c = first; c < end; c += kRunCols) {
        load_run<kStored>(from + c * stride, stride, std::min<int64_t>(kRunCols, end - c), x);
        encode_run(r, c, end - c, x, scale);
      }
    }
  }

  GroupScale scale_of(int64_t r, float amax) const {
    if (a_.row_scales == nullptr) return group_scale(coding_, amax, outer_);
    return {std::bit_cast<uint32_t>(a_.row_scales[r]), a_.row_scales[r]};
  }

  // `left`: columns of the source from the run's first on. Groups that are shorter than a run have
  // scales of their own, others `scale`.
  void encode_run(int64_t r, int64_t col, int64_t left, const RunFloats& x, GroupScale scale) {
    RunFloats scales;
    scales.fill(scale.value);
    const int64_t wide = group_cols(format_), count = std::min<int64_t>(left, kRunCols);
    for (int64_t first = 0; wide < kRunCols && first < count; first += wide) {
      scale = group_scale(coding_, largest_finite(x.data() + first, wide), outer_);
      put_scale(a_.first_row + r, (a_.first_col + col + first) / wide, scale.stored);
      std::fill_n(scales.begin() + first, wide, scale.value);
    }
    RunCodes codes;
    switch (coding_.table) {
      case CodeTable::integers:
        make_codes<CodeTable::integers>(coding_, x, scales, codes);
        break;
      case CodeTable::e2m1:
        make_codes<CodeTable::e2m1>(coding_, x, scales, codes);
        break;
      case CodeTable::e4m3:
        make_codes<CodeTable::e4m3>(coding_, x, scales, codes);
        break;
      case CodeTable::own:
        make_codes<CodeTable::own>(coding_, x, scales, codes);
    }
    RunFloats decoded;
    for (size_t c = 0; c < kRunCols; ++c) decoded[c] = values_[codes[c]] * scales[c];
    add(x, decoded);
    std::fill(codes.begin() + count, codes.end(), uint8_t{0});
    put_run(codes, format_.bits, words_of(a_.first_row + r, (a_.first_col + col) / kRunCols),
            packed_ ? kPanelRows : 1);
  }

  // Zeros behind the last column change nothing.
  void add(const RunFloats& x, const RunFloats& decoded) {
    for (size_t c = 0; c < kRunCols; ++c) {
      const bool finite = std::abs(x[c]) < std::bit_cast<float>(kFloatInfinityBits);
      const double value = finite ? static_cast<double>(x[c]) : 0;
      const double error = finite ? value - static_cast<double>(decoded[c]) : 0;
      const size_t lane = c % kLanes;
      not_finite_[lane] += finite ? 0 : 1;
      error_squares_[lane] += error * error;
      value_squares_[lane] += value * value;
      max_error_[lane] = std::max(max_error_[lane], static_cast<float>(std::abs(error)));
    }
  }

  EncodeStats stats() const {
    EncodeStats stats;
    stats.elements = a_.rows * a_.cols();
    for (size_t lane = 0; lane < kLanes; ++lane)
      stats.add(
          {error_squares_[lane], value_squares_[lane], max_error_[lane], not_finite_[lane], 0});
    return stats;
  }

  const EncodeArgs& a_;
  const WeightFormat& format_;
  GroupCoding coding_;
  bool packed_;
  int64_t runs_, groups_;
  float outer_ = 1;
  std::array<float, 256> values_{};  // of codes
  // Parts of EncodeStats, so that the sums are some at a time.
  static constexpr size_t kLanes = 8;
  std::array<double, kLanes> error_squares_{}, value_squares_{};
  std::array<float, kLanes> max_error_{};
  std::array<int64_t, kLanes> not_finite_{};
};

}  // namespace

const float* scheme_tables(const WeightFormat& format) {
  static constexpr auto kLevels = [] {
    std::array<float, kCodeValues> levels{};
    for (int code = 0; code < kCodeValues; ++code)
      levels[static_cast<size_t>(code)] = Nf4::level(code);
    return levels;
  }();
  return format.table == CodeTable::own ? kLevels.data() : nullptr;
}

bool makes_groups(const EncodeArgs& a) {
  return a.group != ScaleGroup::none && a.to.format.scales == ScaleKind::grouped;
}

void check_groups(const EncodeArgs& a) {
  const Weight& to = a.to;
  const WeightFormat& format = to.format;
  check(is_float_weight(a.stored), "source elements of f64, f32, f16 or bf16");
  check(to.data != nullptr && to.group_scales != nullptr, "codes and scales");
  check(format.bits == 4 || format.bits == 8, "codes of 4 or 8 bits");
  check(!has_zeros(format) && !format.ordered && format.outer_groups == 0, "a scheme's format");
  check((format.outer == Outer::none) == (to.outers == nullptr), "outer scales");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0,
        "row groups begin a panel");
  const bool by_rows = a.group == ScaleGroup::row;
  const int64_t unit =
      by_rows ? int64_t{kRunCols} : std::max<int64_t>(group_cols(format), kRunCols);
  const bool to_the_end = a.first_col + a.cols() == to.cols;
  check(a.first_col >= 0 && a.first_col + a.cols() <= to.cols, "columns within the weight");
  check(a.first_col % unit == 0 && (to_the_end || a.cols() % unit == 0), "whole groups and runs");
  check(!by_rows || a.row_scales != nullptr || a.cols() == to.cols,
        "scales of rows that are not seen at once");
}

EncodeStats encode_groups(const EncodeArgs& a) {
  check_groups(a);
  return GroupEncoder(a).encode();
}

}  // namespace sluice
