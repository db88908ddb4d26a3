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

// A word of a row of codes as the weight has it; `left`: bytes of the row from it on.
uint32_t code_word(const EncodeArgs& a, const std::byte* from, int64_t left) {
  constexpr int64_t kBytes = sizeof(uint32_t);
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
  if (to.format.layout != WeightLayout::packed || a.places != nullptr) return 0;
  const int64_t whole = to.cols * bits / 32;
  for (int64_t r = 0; r < a.rows; r += kPanelRows) {
    auto* out = reinterpret_cast<uint32_t*>(to.data) + (a.first_row + r) * words;
    if (bits == 2) put_panel<2>(a, r, whole, out);
    if (bits == 4) put_panel<4>(a, r, whole, out);
    if (bits == 8) put_panel<8>(a, r, whole, out);
  }
  return whole;
}

void put_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  const int bits = to.format.bits;
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t apart = packed ? kPanelRows : 1, words = ceil_div(to.cols, kRunCols) * bits;
  const int64_t rows = packed ? ceil_div(a.rows, kPanelRows) * kPanelRows : a.rows;
  const int64_t row_bytes = ceil_div(to.cols * bits, 8), word_cols = 32 / bits;
  check(bits == 2 || bits == 4 || bits == 8, "words of whole codes");
  put_tables(a);
  const int64_t first = put_whole_words(a, words);
  for (int64_t r = 0; r < rows && first < words; ++r) {
    const int64_t row = a.first_row + r;
    auto* out = reinterpret_cast<uint32_t*>(to.data) +
                (packed ? row / kPanelRows * words * kPanelRows + row % kPanelRows : row * words);
    for (int64_t w = first; w < words; ++w) out[w * apart] = 0;
    for (int64_t w = first; r < a.rows && w < words; ++w) {
      const uint32_t word = code_word(a, a.row(r) + w * 4, row_bytes - w * 4);
      if (a.places == nullptr) {
        out[w * apart] = paired_codes(word, bits);
        continue;
      }
      for (int64_t c = w * word_cols; c < std::min((w + 1) * word_cols, to.cols); ++c) {
        const int64_t place = a.places[c];
        put_run_code(out + place / kRunCols * bits * apart, apart, bits,
                     static_cast<int>(place % kRunCols),
                     word >> (c % word_cols * bits) & ((1u << bits) - 1));
      }
    }
  }
}

float scale_of(const EncodeArgs& a, const std::byte* from) {
  if (a.to.format.scale_type == DType::u8) return 1;
  alignas(float) std::byte bytes[sizeof(float)];
  std::memcpy(bytes, from, static_cast<size_t>(dtype_bytes(a.to.format.scale_type)));
  return stored_scale(bytes, a.to.format.scale_type, nullptr, 0) * a.factor;
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

void put_scales(const EncodeArgs& a) {
  if (has_byte_scales(a) && a.to.format.layout == WeightLayout::packed) return put_byte_scales(a);
  const auto bytes = static_cast<size_t>(dtype_bytes(a.to.format.scale_type));
  for_numbers(a, groups_of(a.to.format, a.to.cols), [&](int64_t r, int64_t g, int64_t at) {
    std::byte* to = a.to.group_scales + at * static_cast<int64_t>(bytes);
    if (r < 0) {
      std::memset(to, 0, bytes);
    } else if (a.to.format.scale_type == DType::f32) {
      const float scale = scale_of(a, a.source + number_at(a, r, g, 1));
      std::memcpy(to, &scale, bytes);
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
  for_numbers(a, groups_of(a.to.format, a.to.cols), [&](int64_t r, int64_t g, int64_t at) {
    a.to.zeros[at] = 0;
    if (r < 0) return;
    const std::byte* from = a.source + number_at(a, r, g, 1);
    if (a.words.is_signed) {
      a.to.zeros[at] = static_cast<uint8_t>((std::to_integer<int>(*from) + (1 << (bits - 1))) &
                                            ((1 << bits) - 1));
      return;
    }
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    a.to.zeros[at] =
        static_cast<uint8_t>(word >> (a.output(r) % a.sharing * bits) & ((1u << bits) - 1));
  });
}

}  // namespace

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
  if (a.plane == Plane::zeros) return stats;
  const int64_t step = outers ? format.outer_groups : 1;
  const int64_t each = !outers                    ? groups_of(format, a.to.cols)
                       : format.outer_groups == 0 ? 1
                                                  : outers_of(format, a.to.cols);
  if (!outers && format.scale_type == DType::f8_e8m0 && has_byte_scales(a) && a.factor == 1) {
    for (int64_t r = 0; r < a.rows; ++r) {
      const std::byte* from = a.source + number_at(a, r, 0, 1);
      stats.not_finite += std::count(from, from + each, std::byte{0xff});  // its only NaN
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
        value = scale_of(a, from);
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
  if (a.plane == Plane::codes) return a.row(last) - a.source + ceil_div(a.to.cols * format.bits, 8);
  const bool outers = a.plane == Plane::outers;
  const int64_t step = outers ? format.outer_groups : 1;
  const int64_t each = !outers                    ? groups_of(format, a.to.cols)
                       : format.outer_groups == 0 ? 1
                                                  : outers_of(format, a.to.cols);
  const int64_t bytes = outers ? static_cast<int64_t>(sizeof(float)) : dtype_bytes(a.stored);
  return number_at(a, last, each - 1, step) + bytes;
}

}  // namespace sluice
