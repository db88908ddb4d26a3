#include "quant/row_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/groups.h"
#include "quant/not_finite.h"
#include "src/base/error.h"

namespace sluice {
namespace {

// Returns where the numbers of a plane beside the codes lie: the first is that of a row's first
// group, each of the others has `groups` groups more.
int64_t number_at(const EncodeArgs& a, int64_t row, int64_t number, int64_t groups) {
  const int64_t wide = a.to.format.scale_cols;
  const int64_t bytes =
      a.plane == Plane::outers ? static_cast<int64_t>(sizeof(float)) : dtype_bytes(a.stored);
  if (a.flat > 0) {
    const int64_t first = a.output(row) * a.source_cols + a.first_col;
    return (first + number * groups * wide) / a.flat * bytes;
  }
  const int64_t stored_wide = a.source_group > 0 ? a.source_group : wide;
  const int64_t group = (a.first_col + number * groups * wide) / stored_wide;
  if (a.across > 0) return (group * a.across + a.output(row)) * bytes;
  if (a.sharing == 0) return 0;  // one for all
  return a.output(row) / a.sharing * a.source_stride + group * bytes;
}

// Returns how many of them a row has.
int64_t numbers_of_row(const EncodeArgs& a) {
  const WeightFormat& format = a.to.format;
  if (a.plane != Plane::outers) return groups_of(format, a.to.cols);
  return format.outer_groups == 0 ? 1 : outers_of(format, a.to.cols);
}

// Calls put(source row, number, place in the plane) for each row from `first` on that the source
// has, and those that fill up the last panel, whose row is -1 here.
template <class Put>
void for_numbers(const EncodeArgs& a, int64_t each, int64_t first, Put&& put) {
  const bool packed = a.to.format.layout == WeightLayout::packed;
  const int64_t rows = packed ? ceil_div(a.rows, kPanelRows) * kPanelRows : a.rows;
  for (int64_t r = first; r < rows; ++r) {
    const int64_t row = a.first_row + r;
    for (int64_t i = 0; i < each; ++i) {
      put(r < a.rows ? r : -1, i,
          packed ? (row / kPanelRows * each + i) * kPanelRows + row % kPanelRows : row * each + i);
    }
  }
}

void put_tables(const EncodeArgs& a) {
  const Weight& to = a.to;
  if (a.first_row != 0) return;
  if (a.order != nullptr) std::copy_n(a.order, to.cols, to.order);
  if (to.tables != nullptr)
    std::copy_n(a.tables, plane_bytes(to.format, Plane::tables, to.rows, to.cols) / sizeof(float),
                to.tables);
}

// The upper bits of all codes of four or eight bits in a word.
uint32_t sign_bits(int bits) { return bits == 4 ? 0x88888888 : 0x80808080; }

// Rows of codes that are packed together, from row `first` on.
PackCodesJob job_of(const EncodeArgs& a, int64_t first) {
  const Weight& to = a.to;
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t words = ceil_div(to.cols, kRunCols) * to.format.bits;
  PackCodesJob job{.outputs = packed ? kPanelRows : 1,
                   .bytes = code_row_bytes(a),
                   .bits = to.format.bits,
                   .step = a.words.sharing > 1 ? 8 : to.format.bits,
                   .of_word = a.words.of_word,
                   .high_first = a.words.high_first && a.words.sharing == 1,
                   .signs = a.words.is_signed ? sign_bits(to.format.bits) : 0,
                   .cols = to.cols,
                   .order = a.order,
                   .to = reinterpret_cast<uint32_t*>(to.data) + (a.first_row + first) * words,
                   .to_apart = packed ? kPanelRows : 1};
  for (int64_t i = 0; i < job.outputs; ++i) {
    const int64_t row = first + i, behind = row + job.outputs;
    job.from[i] = row < a.rows ? a.row(row) : nullptr;
    job.next[i] = behind < a.rows ? a.row(behind) : nullptr;
    if (a.words.sharing > 1)
      job.shifts[i] = static_cast<uint32_t>(a.words.bits_below(to.format.bits));
  }
  return job;
}

void put_codes(const EncodeArgs& a, PackCodes* pack) {
  put_tables(a);
  const int64_t rows = a.to.format.layout == WeightLayout::packed ? kPanelRows : 1;
  for (int64_t r = 0; r < a.rows; r += rows) pack(job_of(a, r));
}

// The type of scales, or of zeros that are floats.
DType number_type(const EncodeArgs& a) {
  return a.plane == Plane::zeros ? a.to.format.zero_type : a.to.format.scale_type;
}

// The value of a scale, or of a zero that is a float.
float number_of(const EncodeArgs& a, const std::byte* from) {
  alignas(float) std::byte bytes[sizeof(float)];
  const DType type = number_type(a) == DType::f32 ? a.stored : number_type(a);
  std::memcpy(bytes, from, static_cast<size_t>(dtype_bytes(type)));
  const float number = stored_scale(bytes, type, nullptr, 0);
  return static_cast<float>((a.inverse ? 1.0 / number : number) * a.factor);
}

// Returns whether those of a row lie side by side, as memory has them.
bool are_copied(const EncodeArgs& a) {
  const DType type = number_type(a);
  const int64_t wide = a.to.format.scale_cols;
  const bool neighbours = a.flat > 0
                              ? a.flat == wide
                              : a.sharing > 0 && (a.source_group == 0 || a.source_group == wide);
  return neighbours && dtype_bytes(a.stored) == dtype_bytes(type) &&
         (type != DType::f32 || (a.factor == 1 && !a.inverse));
}

// Copies `count` numbers to every `step`th place.
template <class Number>
void copy_apart(const std::byte* from, int64_t count, int64_t step, std::byte* to) {
  constexpr int64_t kSize = sizeof(Number);
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * step * kSize, from + i * kSize, sizeof(Number));
}

void copy_numbers(const EncodeArgs& a, std::byte* plane) {
  const int64_t each = groups_of(a.to.format, a.to.cols), bytes = dtype_bytes(a.stored);
  const bool packed = a.to.format.layout == WeightLayout::packed;
  const int64_t step = packed ? kPanelRows : 1;
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t row = a.first_row + r;
    std::byte* to = plane + (row / step * each * step + row % step) * bytes;
    const std::byte* from = a.source + number_at(a, r, 0, 1);
    if (bytes == 1) copy_apart<uint8_t>(from, each, step, to);
    if (bytes == 2) copy_apart<uint16_t>(from, each, step, to);
    if (bytes == 4) copy_apart<uint32_t>(from, each, step, to);
  }
}

// Puts scales, or zeros that are floats.
void put_numbers(const EncodeArgs& a, std::byte* plane) {
  const DType type = number_type(a);
  const auto bytes = static_cast<size_t>(dtype_bytes(type));
  const bool copied = are_copied(a);
  if (copied) copy_numbers(a, plane);
  for_numbers(a, groups_of(a.to.format, a.to.cols), copied ? a.rows : 0,
              [&](int64_t r, int64_t g, int64_t at) {
                std::byte* to = plane + at * static_cast<int64_t>(bytes);
                if (r < 0) {
                  std::memset(to, 0, bytes);
                } else if (type == DType::f32) {
                  const float number = number_of(a, a.source + number_at(a, r, g, 1));
                  std::memcpy(to, &number, bytes);
                } else {
                  std::memcpy(to, a.source + number_at(a, r, g, 1), bytes);
                }
              });
}

void put_outers(const EncodeArgs& a) {
  const WeightFormat& format = a.to.format;
  if (format.outer_groups == 0) {
    float outer = 0;
    std::memcpy(&outer, a.source + number_at(a, 0, 0, 0), sizeof outer);
    outer = static_cast<float>(outer * a.factor);
    const int64_t end = ceil_div(a.first_row + a.rows, kPanelRows);  // rows may begin in a panel
    std::fill(a.to.outers + a.first_row / kPanelRows, a.to.outers + end, outer);
    return;
  }
  for_numbers(a, outers_of(format, a.to.cols), 0, [&](int64_t r, int64_t i, int64_t at) {
    a.to.outers[at] = 0;
    if (r >= 0)
      std::memcpy(a.to.outers + at, a.source + number_at(a, r, i, format.outer_groups),
                  sizeof(float));
  });
}

void put_zeros(const EncodeArgs& a) {
  const int bits = a.to.format.bits;
  if (a.to.format.zero_type != DType::u8) return put_numbers(a, a.to.zeros);
  for_numbers(a, groups_of(a.to.format, a.to.cols), 0, [&](int64_t r, int64_t g, int64_t at) {
    a.to.zeros[at] = std::byte{0};
    if (r < 0) return;
    const std::byte* from = a.source + number_at(a, r, g, 1);
    if (a.words.is_signed) {
      a.to.zeros[at] = static_cast<std::byte>((std::to_integer<int>(*from) + (1 << (bits - 1))) &
                                              ((1 << bits) - 1));
      return;
    }
    const int64_t bit = a.output(r) % a.sharing * bits, apart = zeros_apart(a);
    uint32_t word, next = 0;
    std::memcpy(&word, from + bit / 32 * apart, sizeof word);
    if (bit % 32 + bits > 32) std::memcpy(&next, from + (bit / 32 + 1) * apart, sizeof next);
    const uint64_t both = word | uint64_t{next} << 32;
    a.to.zeros[at] = static_cast<std::byte>(both >> bit % 32 & ((1u << bits) - 1));
  });
}

}  // namespace

int64_t zeros_apart(const EncodeArgs& a) {
  return a.sharing > 0 ? a.source_stride * 32 / (a.sharing * a.to.format.bits) : 0;
}

int64_t code_row_bytes(const EncodeArgs& a) {
  if (a.words.sharing > 1) return a.to.cols;
  if (a.words.of_word > 0) return ceil_div(a.to.cols, int64_t{a.words.of_word}) * 4;
  return ceil_div(a.to.cols * a.to.format.bits, int64_t{8});
}

void encode_row_codes(const EncodeArgs& a, PackCodes* pack) {
  const Weight& to = a.to;
  check(to.plane(a.plane) != nullptr, "a plane with storage");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(to.format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0,
        "row groups begin a panel");
  const bool in_words = a.plane == Plane::zeros && to.format.zero_type == DType::u8;
  check(a.words.is_signed || !in_words || a.sharing > 0, "words of some outputs");
  switch (a.plane) {
    case Plane::codes:
      return put_codes(a, pack);
    case Plane::scales:
      return put_numbers(a, a.to.group_scales);
    case Plane::outers:
      return put_outers(a);
    default:
      check(a.plane == Plane::zeros, "a plane that has rows");
      put_zeros(a);
  }
}

EncodeStats row_code_stats(const EncodeArgs& a) {
  const WeightFormat& format = a.to.format;
  EncodeStats stats;
  if (a.plane == Plane::codes) {
    stats.elements = a.rows * a.to.cols;
    for (int64_t r = 0; format.table == CodeTable::e4m3 && r < a.rows; ++r)
      stats.not_finite += count_not_finite(DType::f8_e4m3, a.row(r), a.to.cols);
    return stats;
  }
  const bool outers = a.plane == Plane::outers;
  if (!outers && number_type(a) == DType::u8) return stats;  // codes
  const bool copied = !outers && are_copied(a);
  const int64_t step = outers ? format.outer_groups : 1, each = numbers_of_row(a);
  for (int64_t r = 0; r < a.rows; ++r) {
    if (copied) {
      const std::byte* from = a.source + number_at(a, r, 0, 1);
      stats.not_finite += count_not_finite(number_type(a), from, each);
      continue;
    }
    for (int64_t i = 0; i < each; ++i) {
      const std::byte* from = a.source + number_at(a, r, i, step);
      float value = 0;
      if (outers) {
        std::memcpy(&value, from, sizeof value);
      } else {
        value = number_of(a, from);
      }
      const bool divides_by_zero = outers && format.outer == Outer::divides && value == 0;
      if (!std::isfinite(value) || divides_by_zero) ++stats.not_finite;
    }
  }
  return stats;
}

int64_t row_code_bytes(const EncodeArgs& a) {
  const WeightFormat& format = a.to.format;
  const int64_t last = a.rows - 1;
  if (a.plane == Plane::codes) return a.row(last) - a.source + code_row_bytes(a);
  const bool outers = a.plane == Plane::outers;
  const int64_t step = outers ? format.outer_groups : 1;
  const int64_t bytes = outers ? static_cast<int64_t>(sizeof(float)) : dtype_bytes(a.stored);
  int64_t words = 0;  // behind the first of a row of zeros
  if (a.plane == Plane::zeros && format.zero_type == DType::u8 && !a.words.is_signed)
    words = (a.output(last) % a.sharing * format.bits + format.bits - 1) / 32 * zeros_apart(a);
  return number_at(a, last, numbers_of_row(a) - 1, step) + words + bytes;
}

}  // namespace sluice
