#include "quant/grouped_columns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "quant/float8.h"
#include "quant/groups.h"
#include "src/base/error.h"

namespace sluice {
namespace {

constexpr int kWordBits = 32;

uint32_t word_at(const EncodeArgs& a, int64_t row, int64_t col) {
  uint32_t word;
  std::memcpy(&word, a.source + row * a.source_stride + col * 4, sizeof word);
  return word;
}

uint16_t half_at(const EncodeArgs& a, int64_t row, int64_t col) {
  uint16_t half;
  std::memcpy(&half, a.source + row * a.source_stride + col * 2, sizeof half);
  return half;
}

// Code i of a stream of words.
uint32_t code_of(const uint32_t* words, int bits, int i) {
  const int at = i * bits % kWordBits, word = i * bits / kWordBits;
  uint32_t code = words[word] >> at;
  if (at + bits > kWordBits) code |= words[word + 1] << (kWordBits - at);
  return code & ((1u << bits) - 1);
}

// The four-bit code of an output in a row whose words have eight outputs.
uint32_t code_across(const EncodeArgs& a, int64_t row, int64_t output) {
  const auto place = a.words.places >> (output % 8 * 4) & 15;
  return word_at(a, row, output / 8) >> (place * 4) & 15;
}

// Returns where an output's run of columns lies in the weight.
uint32_t* run_in(const Weight& to, int64_t row, int64_t run) {
  auto* words = reinterpret_cast<uint32_t*>(to.data);
  const int64_t bits = to.format.bits, runs = ceil_div(to.cols, kRunCols);
  if (to.format.layout == WeightLayout::rows) return words + (row * runs + run) * bits;
  return words + (row / kPanelRows * runs + run) * bits * kPanelRows + row % kPanelRows;
}

// Returns the outputs with those that fill up the last panel, whose codes, scales and zeros are 0.
int64_t padded_outputs(const EncodeArgs& a) {
  return a.to.format.layout == WeightLayout::rows ? a.outputs
                                                  : ceil_div(a.outputs, kPanelRows) * kPanelRows;
}

int64_t rows_of_run(const EncodeArgs& a) { return a.words.across ? kRunCols : a.to.format.bits; }

// A run of an output whose codes lie across rows.
void put_across(const EncodeArgs& a, int64_t run, int64_t o) {
  const int64_t apart = a.to.format.layout == WeightLayout::rows ? 1 : kPanelRows;
  uint32_t* out = run_in(a.to, a.first_row + o, a.first_col / kRunCols + run);
  for (int j = 0; j < 4; ++j) out[j * apart] = 0;
  for (int c = 0; o < a.outputs && c < kRunCols; ++c)
    put_run_code(out, apart, 4, c, code_across(a, run * kRunCols + c, a.output(o)));
}

void encode_codes(const EncodeArgs& a) {
  const Weight& to = a.to;
  const int bits = to.format.bits;
  const int64_t apart = to.format.layout == WeightLayout::rows ? 1 : kPanelRows;
  if (a.places != nullptr) {
    const WeightFormat& f = to.format;
    std::fill_n(to.data + plane_offset(f, Plane::codes, a.first_row, to.cols),
                plane_bytes(f, Plane::codes, a.outputs, to.cols), std::byte{0});
    std::copy_n(a.order, to.cols, to.order);
  }
  for (int64_t run = 0; run < a.rows / rows_of_run(a); ++run) {
    for (int64_t o = 0; o < padded_outputs(a); ++o) {
      if (a.words.across) {
        put_across(a, run, o);
        continue;
      }
      uint32_t words[8] = {};
      for (int j = 0; o < a.outputs && j < bits; ++j)
        words[j] = word_at(a, run * bits + j, a.output(o));
      const int64_t col = a.first_col + run * kRunCols;
      if (a.places != nullptr) {
        for (int c = 0; c < kRunCols; ++c) {
          const int64_t place = a.places[col + c];
          put_run_code(run_in(to, a.first_row + o, place / kRunCols), apart, bits,
                       static_cast<int>(place % kRunCols), code_of(words, bits, c));
        }
        continue;
      }
      uint32_t* out = run_in(to, a.first_row + o, col / kRunCols);
      if (bits != 3) {
        for (int j = 0; j < bits; ++j) out[j * apart] = paired_codes(words[j], bits);
        continue;
      }
      for (int j = 0; j < bits; ++j) out[j * apart] = 0;
      for (int c = 0; c < kRunCols; ++c) put_run_code(out, apart, bits, c, code_of(words, bits, c));
    }
  }
}

// Calls put(place in the plane, group, output) for every scale or zero of the source; output -1
// where there is none.
template <class Put>
void for_groups(const EncodeArgs& a, Put&& put) {
  const Weight& to = a.to;
  const int64_t groups = groups_of(to.format, to.cols);
  for (int64_t g = 0; g < a.rows; ++g) {
    for (int64_t o = 0; o < padded_outputs(a); ++o) {
      const int64_t row = a.first_row + o, group = a.first_group + g;
      put(to.format.layout == WeightLayout::rows
              ? row * groups + group
              : (row / kPanelRows * groups + group) * kPanelRows + row % kPanelRows,
          g, o < a.outputs ? a.output(o) : -1);
    }
  }
}

}  // namespace

void encode_grouped_columns(const EncodeArgs& a) {
  const WeightFormat& format = a.to.format;
  const int bits = format.bits;
  check(a.to.plane(a.plane) != nullptr && a.rows >= 0, "a plane with storage");
  check(a.first_row >= 0 && a.first_row + a.outputs <= a.to.rows, "rows within the weight");
  if (a.plane == Plane::codes) {
    check(a.stored == DType::u32 && a.rows % rows_of_run(a) == 0 && a.first_col % kRunCols == 0,
          "whole runs");
    check(a.first_col + a.rows / rows_of_run(a) * kRunCols <= a.to.cols,
          "columns within the weight");
    check(!a.words.across || (bits == 4 && a.places == nullptr), "four bits, in their order");
    return encode_codes(a);
  }
  check(a.first_group + a.rows <= groups_of(format, a.to.cols), "groups within the weight");
  if (a.plane == Plane::zeros) {
    return for_groups(a, [&](int64_t at, int64_t g, int64_t o) {
      a.to.zeros[at] = std::byte{0};
      if (o < 0) return;
      if (a.words.across) {
        a.to.zeros[at] = static_cast<std::byte>(code_across(a, g, o));
        return;
      }
      const int64_t bit = o * bits, word = bit / kWordBits;
      const int shift = static_cast<int>(bit % kWordBits);
      uint64_t both = word_at(a, g, word);
      if (shift + bits > kWordBits) both |= uint64_t{word_at(a, g, word + 1)} << kWordBits;
      a.to.zeros[at] = static_cast<std::byte>(both >> shift & ((1u << bits) - 1));
    });
  }
  check(a.plane == Plane::scales && a.stored == format.scale_type, "scales");
  for_groups(a, [&](int64_t at, int64_t g, int64_t o) {
    const uint16_t scale = o < 0 ? uint16_t{0} : half_at(a, g, o);
    std::memcpy(a.to.group_scales + at * 2, &scale, sizeof scale);
  });
}

EncodeStats grouped_column_stats(const EncodeArgs& a) {
  EncodeStats stats;
  if (a.plane == Plane::codes) stats.elements = a.outputs * (a.rows / rows_of_run(a)) * kRunCols;
  for (int64_t i = 0; a.plane == Plane::scales && i < a.rows * a.outputs; ++i) {
    const uint16_t scale = half_at(a, i / a.outputs, a.output(i % a.outputs));
    const float value = a.stored == DType::f16 ? f16_to_float(scale) : bf16_to_float(scale);
    if (!std::isfinite(value)) ++stats.not_finite;
  }
  return stats;
}

std::optional<int> one_code(std::span<const uint32_t> words, int bits) {
  const auto codes = static_cast<int>(words.size() * kWordBits / static_cast<size_t>(bits));
  if (codes == 0) return std::nullopt;
  const uint32_t first = code_of(words.data(), bits, 0);
  for (int i = 1; i < codes; ++i) {
    if (code_of(words.data(), bits, i) != first) return std::nullopt;
  }
  return static_cast<int>(first);
}

std::vector<int32_t> order_by_group(std::span<const int32_t> groups, int64_t group_cols,
                                    std::string_view name) {
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return groups[static_cast<size_t>(i)]; });
  for (size_t k = 0; k < order.size(); ++k) {
    const int32_t group = groups[static_cast<size_t>(order[k])];
    if (group != static_cast<int64_t>(k) / group_cols)
      fail(ErrorKind::refused, "{} does not give every group {} inputs: the file is damaged", name,
           group_cols);
  }
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

}  // namespace sluice
