#include "quant/grouped_columns.h"

#include <algorithm>
#include <array>
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

// The bytes of a scale, of which the first dtype_bytes(a.stored) count.
struct alignas(float) ScaleBytes {
  std::byte bytes[sizeof(float)] = {};
};
ScaleBytes scale_in(const EncodeArgs& a, int64_t row, int64_t col) {
  ScaleBytes scale;
  const int64_t size = dtype_bytes(a.stored);
  std::memcpy(scale.bytes, a.source + row * a.source_stride + col * size,
              static_cast<size_t>(size));
  return scale;
}

// Code i of a stream of words.
uint32_t code_of(const uint32_t* words, int bits, int i) {
  const int at = i * bits % kWordBits, word = i * bits / kWordBits;
  uint32_t code = words[word] >> at;
  if (at + bits > kWordBits) code |= words[word + 1] << (kWordBits - at);
  return code & ((1u << bits) - 1);
}

// The first bit of an output's four-bit code, in a row whose words have eight outputs.
int place_across(const EncodeArgs& a, int64_t output) {
  return static_cast<int>(a.words.places >> (output % 8 * 4) & 15) * 4;
}
uint32_t code_across(const EncodeArgs& a, int64_t row, int64_t output) {
  return word_at(a, row, output / 8) >> place_across(a, output) & 15;
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

// Outputs that are packed together, as a panel has them.
struct Columns {
  int64_t word[kPanelRows];  // of a row of the source; -1: there is no output, its codes are 0
  int shift[kPanelRows];     // of the first bit in it
  bool together = true;      // all words are there, side by side
};
using Lanes = std::array<uint32_t, kPanelRows>;  // of these outputs

Columns columns_from(const EncodeArgs& a, int64_t first) {
  Columns columns;
  for (int r = 0; r < kPanelRows; ++r) {
    const int64_t output = first + r < a.outputs ? a.output(first + r) : -1;
    const bool across = a.words.across && output >= 0;
    columns.word[r] = across ? output / 8 : output;
    columns.shift[r] = across ? place_across(a, output) : 0;
    if (columns.word[r] != columns.word[0] + r) columns.together = false;
  }
  return columns;
}

Lanes words_at(const EncodeArgs& a, int64_t row, const Columns& columns) {
  Lanes words{};
  if (columns.together) {
    std::memcpy(words.data(), a.source + row * a.source_stride + columns.word[0] * 4, sizeof words);
    return words;
  }
  for (size_t r = 0; r < words.size(); ++r)
    if (columns.word[r] >= 0) words[r] = word_at(a, row, columns.word[r]) >> columns.shift[r];
  return words;
}

// The codes of an input of the source.
template <int kBits>
Lanes codes_at(const EncodeArgs& a, int64_t input, const Columns& columns) {
  const int64_t bit = a.words.across ? input * kWordBits : input * kBits;
  const int64_t row = bit / kWordBits;
  const int at = static_cast<int>(bit % kWordBits);
  Lanes codes = words_at(a, row, columns);
  for (uint32_t& code : codes) code >>= at;
  if (at + kBits > kWordBits) {
    const Lanes next = words_at(a, row + 1, columns);
    for (size_t r = 0; r < codes.size(); ++r) codes[r] |= next[r] << (kWordBits - at);
  }
  for (uint32_t& code : codes) code &= (1u << kBits) - 1;
  return codes;
}

template <int kBits>
using RunWords =
    std::array<Lanes, kBits>;  // 32 columns of the outputs of a panel, as the weight has them

template <int kBits>
RunWords<kBits> collected_run(const EncodeArgs& a, const Columns& columns, int64_t run) {
  RunWords<kBits> words{};
  for (int c = 0; c < kRunCols; ++c) {
    const int64_t col = run * kRunCols + c;
    const Lanes codes = codes_at<kBits>(a, a.order != nullptr ? a.order[col] : col, columns);
    for (size_t r = 0; r < codes.size(); ++r)
      put_run_code(words[0].data() + r, kPanelRows, kBits, c, codes[r]);
  }
  return words;
}

// The same of codes that are whole and in order in their words.
template <int kBits>
RunWords<kBits> paired_run(const EncodeArgs& a, const Columns& columns, int64_t run) {
  RunWords<kBits> words;
  for (int j = 0; j < kBits; ++j) {
    Lanes& word = words[static_cast<size_t>(j)];
    word = words_at(a, run * kBits + j, columns);
    for (uint32_t& lane : word) lane = paired_codes(lane, kBits);
  }
  return words;
}

// Packs a run of columns of the outputs of a panel, of which `first` is the first.
template <int kBits>
void encode_run(const EncodeArgs& a, int64_t first, int64_t run) {
  const Weight& to = a.to;
  const Columns columns = columns_from(a, first);
  const bool paired = kBits != 3 && a.order == nullptr && !a.words.across;
  const RunWords<kBits> words =
      paired ? paired_run<kBits>(a, columns, run) : collected_run<kBits>(a, columns, run);
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t outputs = std::min<int64_t>(kPanelRows, padded_outputs(a) - first);
  const int64_t row = a.first_row + first, to_run = a.first_col / kRunCols + run;
  if (packed && row % kPanelRows == 0) {
    std::memcpy(run_in(to, row, to_run), words.data(), sizeof words);
    return;
  }
  for (int64_t r = 0; r < outputs; ++r) {
    uint32_t* out = run_in(to, row + r, to_run);
    for (const Lanes& word : words) {
      *out = word[static_cast<size_t>(r)];
      out += packed ? kPanelRows : 1;
    }
  }
}

// Inputs that change places are read from all of the source: for one panel after another, whose
// part of it stays in the cache.
template <int kBits>
void encode_codes(const EncodeArgs& a) {
  const int64_t panels = ceil_div(padded_outputs(a), kPanelRows), runs = a.rows / rows_of_run(a);
  for (int64_t i = 0; i < panels * runs; ++i) {
    const bool ordered = a.order != nullptr;
    encode_run<kBits>(a, (ordered ? i / runs : i % panels) * kPanelRows,
                      ordered ? i % runs : i / panels);
  }
  if (a.order != nullptr) std::copy_n(a.order, a.to.cols, a.to.order);
}

void encode_codes(const EncodeArgs& a) {
  switch (a.to.format.bits) {
    case 2:
      return encode_codes<2>(a);
    case 3:
      return encode_codes<3>(a);
    case 4:
      return encode_codes<4>(a);
    default:
      return encode_codes<8>(a);
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
    check(!a.words.across || (bits == 4 && a.order == nullptr), "four bits, in their order");
    check(a.order == nullptr || a.rows / bits * kRunCols == a.to.cols, "all inputs");
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
    const ScaleBytes scale = o < 0 ? ScaleBytes{} : scale_in(a, g, o);
    const int64_t size = dtype_bytes(a.stored);
    std::memcpy(a.to.group_scales + at * size, scale.bytes, static_cast<size_t>(size));
  });
}

EncodeStats grouped_column_stats(const EncodeArgs& a) {
  EncodeStats stats;
  if (a.plane == Plane::codes) stats.elements = a.outputs * (a.rows / rows_of_run(a)) * kRunCols;
  for (int64_t i = 0; a.plane == Plane::scales && i < a.rows * a.outputs; ++i) {
    const ScaleBytes scale = scale_in(a, i / a.outputs, a.output(i % a.outputs));
    if (!std::isfinite(stored_scale(scale.bytes, a.stored, nullptr, 0))) ++stats.not_finite;
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
