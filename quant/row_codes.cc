#include "quant/row_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quant/groups.h"
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
  if (a.sharing == 0) return 0;  // one for all
  const int64_t stored_wide = a.source_group > 0 ? a.source_group : wide;
  return a.output(row) / a.sharing * a.source_stride +
         (a.first_col + number * groups * wide) / stored_wide * bytes;
}

// Calls put(row of the weight, place in the plane) for each row that the source has, and those that
// fill up the last panel, whose row is -1 here.
template <class Put>
void for_numbers(const EncodeArgs& a, int64_t each, Put&& put) {
  const bool packed = a.to.format.layout == WeightLayout::packed;
  const int64_t rows = packed ? ceil_div(a.rows, kPanelRows) * kPanelRows : a.rows;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = a.first_row + r;
    for (int64_t i = 0; i < each; ++i) {
      put(r < a.rows ? r : -1, i,
          packed ? (row / kPanelRows * each + i) * kPanelRows + row % kPanelRows : row * each + i);
    }
  }
}

// Returns whether words have no part of a code.
bool has_whole_codes(int bits) { return bits == 2 || bits == 4 || bits == 8; }

// The bit of a byte at which the code of a row begins that shares it with other outputs.
int shared_place(const EncodeArgs& a) {
  return (a.words.sharing - 1 - a.words.place) * a.to.format.bits;
}

// A word of a row of codes of 2 or 4 bits that shares its bytes; `left`: bytes from it on.
uint32_t shared_word(const EncodeArgs& a, const std::byte* from, int64_t left) {
  const int bits = a.to.format.bits;
  uint64_t word = 0;
  for (int64_t at = 0; at < 32 / bits && at < left; at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, from + at, static_cast<size_t>(std::min<int64_t>(left - at, 8)));
    eight = eight >> shared_place(a) & (bits == 2 ? 0x0303030303030303 : 0x0f0f0f0f0f0f0f0f);
    eight = (eight | eight >> (8 - bits)) & 0x00ff00ff00ff00ff;
    eight = (eight | eight >> (16 - 2 * bits)) & 0x0000ffff0000ffff;
    eight = (eight | eight >> (32 - 4 * bits)) & 0xffffffff;
    word |= (bits == 2 ? eight & 0xffff : eight) << at * bits;
  }
  return static_cast<uint32_t>(word);
}

// A word of a row of codes as the weight has it.
uint32_t code_word(const EncodeArgs& a, const std::byte* row, int64_t row_bytes, int64_t index) {
  constexpr int64_t kBytes = sizeof(uint32_t);
  const int64_t begin = index * (a.words.sharing > 1 ? 32 / a.to.format.bits : kBytes);
  const std::byte* from = row + begin;
  const int64_t left = row_bytes - begin;
  if (a.words.sharing > 1) return shared_word(a, from, left);
  uint32_t word = 0;
  std::memcpy(&word, from, static_cast<size_t>(std::clamp<int64_t>(left, 0, kBytes)));
  if (a.words.high_first) word = (word & 0x0f0f0f0f) << 4 | (word >> 4 & 0x0f0f0f0f);
  if (a.words.is_signed) word ^= 0x80808080;
  return word;
}

void put_tables(const EncodeArgs& a) {
  const Weight& to = a.to;
  if (a.first_row != 0) return;
  if (a.order != nullptr) std::copy_n(a.order, to.cols, to.order);
  if (to.tables != nullptr)
    std::copy_n(a.tables, plane_bytes(to.format, Plane::tables, to.rows, to.cols) / sizeof(float),
                to.tables);
}

// Puts the first `words` words of a panel's rows, all of them whole, from row `r` on: some words of
// each row at a time, which then are columns of the panel.
template <int kBits, bool kHighFirst>
void put_panel(const EncodeArgs& a, int64_t r, int64_t words, uint32_t* out) {
  constexpr int64_t kWords = 16;
  const uint32_t signs = a.words.is_signed ? 0x80808080 : 0;
  const int64_t rows = std::min(kPanelRows, a.rows - r);
  std::array<std::array<uint32_t, kWords>, kPanelRows> some{};
  for (int64_t w = 0; w < words; w += kWords) {
    const int64_t count = std::min(kWords, words - w);
    for (int64_t i = 0; i < rows; ++i) {
      auto& row = some[static_cast<size_t>(i)];
      std::memcpy(row.data(), a.row(r + i) + w * 4, static_cast<size_t>(count * 4));
      for (uint32_t& word : row) {
        if (kHighFirst) word = (word & 0x0f0f0f0f) << 4 | (word >> 4 & 0x0f0f0f0f);
        word = paired_codes(word ^ signs, kBits);
      }
    }
    for (int64_t k = 0; k < count; ++k)
      for (int64_t i = 0; i < kPanelRows; ++i)
        out[(w + k) * kPanelRows + i] = some[static_cast<size_t>(i)][static_cast<size_t>(k)];
  }
}

// The same of codes that words divide: `runs` runs of a panel, whose words are `bits` times as
// many.
template <int kBits>
void put_streams(const EncodeArgs& a, int64_t r, int64_t runs, uint32_t* out) {
  using Words = std::array<std::array<uint32_t, kPanelRows>, kBits>;
  constexpr int kLow = low_bits(kBits), kHigh = kBits - kLow;
  const int64_t rows = std::min(kPanelRows, a.rows - r);
  for (int64_t run = 0; run < runs; ++run) {
    Words from{}, to{};
    for (int64_t i = 0; i < rows; ++i) {
      std::array<uint32_t, kBits> row;
      std::memcpy(row.data(), a.row(r + i) + run * kBits * 4, sizeof row);
      for (size_t w = 0; w < kBits; ++w) from[w][static_cast<size_t>(i)] = row[w];
    }
    for (int c = 0; c < kRunCols; ++c) {
      const int bit = c * kBits, place = run_place(kLow, c);
      const auto word = static_cast<size_t>(bit / 32);
      const auto next = std::min<size_t>(word + 1, kBits - 1);
      for (size_t i = 0; i < kPanelRows; ++i) {
        const uint64_t both = from[word][i] | uint64_t{from[next][i]} << 32;
        const auto code = static_cast<uint32_t>(both >> bit % 32);
        to[static_cast<size_t>(place / 32)][i] |= (code & ((1u << kLow) - 1)) << place % 32;
        if constexpr (kHigh > 0) {
          const int upper = kLow * 32 + run_place(kHigh, c);
          to[static_cast<size_t>(upper / 32)][i] |= (code >> kLow & ((1u << kHigh) - 1))
                                                    << upper % 32;
        }
      }
    }
    std::memcpy(out + run * kBits * kPanelRows, to.data(), sizeof to);
  }
}

template <int kBits>
void put_panel(const EncodeArgs& a, int64_t r, int64_t words, uint32_t* out) {
  a.words.high_first ? put_panel<kBits, true>(a, r, words, out)
                     : put_panel<kBits, false>(a, r, words, out);
}

// Returns how many words of each row it has put: those before the last one that is not whole, where
// columns stay in their order.
int64_t put_whole_words(const EncodeArgs& a, int64_t words) {
  const Weight& to = a.to;
  const int bits = to.format.bits;
  const bool in_order = a.places == nullptr && a.words.of_word == 0 && a.words.sharing == 1;
  if (to.format.layout != WeightLayout::packed || !in_order) return 0;
  const int64_t runs = to.cols / kRunCols;
  const int64_t whole = has_whole_codes(bits) ? to.cols * bits / 32 : runs * bits;
  for (int64_t r = 0; r < a.rows; r += kPanelRows) {
    auto* out = reinterpret_cast<uint32_t*>(to.data) + (a.first_row + r) * words;
    if (bits == 1) put_streams<1>(a, r, runs, out);
    if (bits == 3) put_streams<3>(a, r, runs, out);
    if (bits == 5) put_streams<5>(a, r, runs, out);
    if (bits == 6) put_streams<6>(a, r, runs, out);
    if (bits == 2) put_panel<2>(a, r, whole, out);
    if (bits == 4) put_panel<4>(a, r, whole, out);
    if (bits == 8) put_panel<8>(a, r, whole, out);
  }
  return whole;
}

// A code of a row as the file has it: the one of input `col`.
uint32_t stored_code(const EncodeArgs& a, const std::byte* row, int64_t row_bytes, int64_t col) {
  const int bits = a.to.format.bits, each = a.words.of_word;
  if (a.words.sharing > 1)
    return std::to_integer<uint32_t>(row[col]) >> shared_place(a) & ((1u << bits) - 1);
  const int64_t bit = each > 0 ? col / each * 32 + col % each * bits : col * bits;
  uint64_t eight = 0;
  const int64_t word = bit / 32 * 4;
  std::memcpy(&eight, row + word, static_cast<size_t>(std::min<int64_t>(row_bytes - word, 8)));
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f, kSigns = 0x8080808080808080;
  if (a.words.high_first) eight = (eight & kLow) << 4 | (eight >> 4 & kLow);
  if (a.words.is_signed) eight ^= kSigns;
  return static_cast<uint32_t>(eight >> bit % 32) & ((1u << bits) - 1);
}

void put_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  const int bits = to.format.bits;
  const bool packed = to.format.layout == WeightLayout::packed;
  const bool by_words = a.places == nullptr && a.words.of_word == 0 && has_whole_codes(bits);
  const int64_t apart = packed ? kPanelRows : 1, words = ceil_div(to.cols, kRunCols) * bits;
  const int64_t rows = packed ? ceil_div(a.rows, kPanelRows) * kPanelRows : a.rows;
  const int64_t row_bytes = code_row_bytes(a);
  put_tables(a);
  const int64_t first = put_whole_words(a, words);
  for (int64_t r = 0; r < rows && first < words; ++r) {
    const int64_t row = a.first_row + r;
    auto* out = reinterpret_cast<uint32_t*>(to.data) +
                (packed ? row / kPanelRows * words * kPanelRows + row % kPanelRows : row * words);
    for (int64_t w = first; w < words; ++w) out[w * apart] = 0;
    for (int64_t w = first; by_words && r < a.rows && w < words; ++w)
      out[w * apart] = paired_codes(code_word(a, a.row(r), row_bytes, w), bits);
    for (int64_t c = first * 32 / bits; !by_words && r < a.rows && c < to.cols; ++c) {
      const int64_t place = a.places != nullptr ? a.places[c] : c;
      put_run_code(out + place / kRunCols * bits * apart, apart, bits,
                   static_cast<int>(place % kRunCols), stored_code(a, a.row(r), row_bytes, c));
    }
  }
}

// The value of a scale, or of a zero that is a float.
float number_of(const EncodeArgs& a, DType type, const std::byte* from) {
  if (type == DType::u8) return 1;
  alignas(float) std::byte bytes[sizeof(float)];
  std::memcpy(bytes, from, static_cast<size_t>(dtype_bytes(type)));
  return static_cast<float>(stored_scale(bytes, type, nullptr, 0) * a.factor);
}

// Scales of a byte, which lie beside each other, go where the panels have them.
void put_byte_scales(const EncodeArgs& a) {
  const int64_t each = groups_of(a.to.format, a.to.cols);
  const int64_t rows = ceil_div(a.rows, kPanelRows) * kPanelRows;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = a.first_row + r;
    std::byte* to = a.to.group_scales + row / kPanelRows * each * kPanelRows + row % kPanelRows;
    const std::byte* from = r < a.rows ? a.source + number_at(a, r, 0, 1) : nullptr;
    for (int64_t g = 0; g < each; ++g)
      to[g * kPanelRows] = from != nullptr ? from[g] : std::byte{0};
  }
}

bool has_byte_scales(const EncodeArgs& a) {
  return a.flat == 0 && a.sharing > 0 && a.source_group == 0 && dtype_bytes(a.stored) == 1 &&
         dtype_bytes(a.to.format.scale_type) == 1;
}

// Puts scales, or zeros that are floats, of `type`.
void put_numbers(const EncodeArgs& a, DType type, std::byte* plane) {
  const auto bytes = static_cast<size_t>(dtype_bytes(type));
  for_numbers(a, groups_of(a.to.format, a.to.cols), [&](int64_t r, int64_t g, int64_t at) {
    std::byte* to = plane + at * static_cast<int64_t>(bytes);
    if (r < 0) {
      std::memset(to, 0, bytes);
    } else if (type == DType::f32) {
      const float number = number_of(a, type, a.source + number_at(a, r, g, 1));
      std::memcpy(to, &number, bytes);
    } else {
      std::memcpy(to, a.source + number_at(a, r, g, 1), bytes);
    }
  });
}

void put_scales(const EncodeArgs& a) {
  if (has_byte_scales(a) && a.to.format.layout == WeightLayout::packed) return put_byte_scales(a);
  put_numbers(a, a.to.format.scale_type, a.to.group_scales);
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
  for_numbers(a, outers_of(format, a.to.cols), [&](int64_t r, int64_t i, int64_t at) {
    a.to.outers[at] = 0;
    if (r >= 0)
      std::memcpy(a.to.outers + at, a.source + number_at(a, r, i, format.outer_groups),
                  sizeof(float));
  });
}

void put_zeros(const EncodeArgs& a) {
  const int bits = a.to.format.bits;
  if (a.to.format.zero_type != DType::u8) return put_numbers(a, a.to.format.zero_type, a.to.zeros);
  for_numbers(a, groups_of(a.to.format, a.to.cols), [&](int64_t r, int64_t g, int64_t at) {
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

void encode_row_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  check(to.plane(a.plane) != nullptr, "a plane with storage");
  check(a.first_row >= 0 && a.first_row + a.rows <= to.rows, "rows within the weight");
  check(to.format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0,
        "row groups begin a panel");
  check(a.words.is_signed || a.plane != Plane::zeros || a.sharing > 0, "words of some outputs");
  switch (a.plane) {
    case Plane::codes:
      return put_codes(a);
    case Plane::scales:
      return put_scales(a);
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
      stats.not_finite += std::count_if(a.row(r), a.row(r) + a.to.cols, [](std::byte code) {
        return (code & std::byte{0x7f}) == std::byte{0x7f};
      });
    return stats;
  }
  const bool outers = a.plane == Plane::outers;
  const bool zeros = a.plane == Plane::zeros;
  if (zeros && format.zero_type == DType::u8) return stats;
  const int64_t step = outers ? format.outer_groups : 1;
  const int64_t each = !outers                    ? groups_of(format, a.to.cols)
                       : format.outer_groups == 0 ? 1
                                                  : outers_of(format, a.to.cols);
  if (!outers && !zeros && format.scale_type != DType::u8 && has_byte_scales(a) && a.factor == 1) {
    // Bits that a NaN has, and no other code.
    const std::byte nan{format.scale_type == DType::f8_e8m0 ? uint8_t{0xff} : uint8_t{0x7f}};
    for (int64_t r = 0; r < a.rows; ++r) {
      const std::byte* from = a.source + number_at(a, r, 0, 1);
      stats.not_finite +=
          std::count_if(from, from + each, [nan](std::byte code) { return (code & nan) == nan; });
    }
    return stats;
  }
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t i = 0; i < each; ++i) {
      const std::byte* from = a.source + number_at(a, r, i, step);
      float value = 0;
      if (outers) {
        std::memcpy(&value, from, sizeof value);
      } else {
        value = number_of(a, zeros ? format.zero_type : format.scale_type, from);
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
  const int64_t each = !outers                    ? groups_of(format, a.to.cols)
                       : format.outer_groups == 0 ? 1
                                                  : outers_of(format, a.to.cols);
  const int64_t bytes = outers ? static_cast<int64_t>(sizeof(float)) : dtype_bytes(a.stored);
  int64_t words = 0;  // behind the first of a row of zeros
  if (a.plane == Plane::zeros && format.zero_type == DType::u8 && !a.words.is_signed)
    words = (a.output(last) % a.sharing * format.bits + format.bits - 1) / 32 * zeros_apart(a);
  return number_at(a, last, each - 1, step) + words + bytes;
}

}  // namespace sluice
