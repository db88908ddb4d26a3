#include "quant/grouped_columns.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "quant/groups.h"
#include "quant/not_finite.h"
#include "src/base/error.h"

namespace sluice {
namespace {

constexpr int kWordBits = 32;

// The code at a bit of a row of words.
uint32_t code_at(const std::byte* row, int64_t bit, int bits) {
  uint32_t word, next = 0;
  const int64_t at = bit % kWordBits;
  std::memcpy(&word, row + bit / kWordBits * 4, sizeof word);
  if (at + bits > kWordBits) std::memcpy(&next, row + (bit / kWordBits + 1) * 4, sizeof next);
  return static_cast<uint32_t>((word | uint64_t{next} << kWordBits) >> at) & ((1u << bits) - 1);
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

// Returns where an output's run of columns lies in the weight.
uint32_t* run_in(const Weight& to, int64_t row, int64_t run) {
  auto* words = reinterpret_cast<uint32_t*>(to.data);
  const int64_t bits = to.format.bits, runs = ceil_div(to.cols, kRunCols);
  if (to.format.layout == WeightLayout::rows) return words + (row * runs + run) * bits;
  return words + (row / kPanelRows * runs + run) * bits * kPanelRows + row % kPanelRows;
}

int64_t rows_of_run(const EncodeArgs& a) { return a.words.across ? kRunCols : a.to.format.bits; }

// Runs that are packed for all panels before those behind them: a source row is read as one stream,
// and a panel is written in pieces of some lines.
constexpr int64_t kRunsAtOnce = 8;

// The word of a source row that has an output's codes.
int64_t word_of_output(const EncodeArgs& a, int64_t o) {
  const int64_t output = a.output(o);
  return a.words.across ? output / 8 : output;
}

// A line of each of some source rows, of which a panel has two words: those of all rows lie
// together here. Codes are taken one by one from lines that are often a power of two apart: in
// their own places most of them would share a few of a cache.
class Tile {
 public:
  // Copies words [word, word + kWords) of `rows` rows from row `first` on.
  void copy(const EncodeArgs& a, int64_t first, int64_t rows, int64_t word) {
    const std::byte* from = a.source + first * a.source_stride + word * 4;
    const int64_t bytes = std::min(kWords * 4, a.source_stride - word * 4);
    for (int64_t r = 0; r < rows; ++r, from += a.source_stride) {
      __builtin_prefetch(from + kWords * 4, 0, 2);  // for the next copy
      for (int64_t at = 0; at + kBytes <= bytes; at += kBytes)
        std::memcpy(words_[at / kBytes][r], from + at, kBytes);
      if (bytes % kBytes != 0) std::memcpy(words_[bytes / kBytes][r], from + bytes - 4, 4);
    }
    word_ = word;
  }
  bool has(int64_t word) const { return word_ >= 0 && word >= word_ && word < word_ + kWords; }
  void clear() { word_ = -1; }
  const std::byte* at(int64_t word) const {
    return words_[(word - word_) / 2][0] + (word - word_) % 2 * 4;
  }
  static constexpr int64_t kBytes = 8;  // of a row

 private:
  static constexpr int64_t kWords = 16;
  int64_t word_ = -1;
  alignas(64) std::byte words_[kWords / 2][kRunsAtOnce * kRunCols][kBytes];
};

// Codes of outputs from `first` on, as many as are packed together, in runs from `run` on.
PackCodesJob job_of(const EncodeArgs& a, int64_t first, int64_t run, int64_t runs) {
  const Weight& to = a.to;
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t rows = rows_of_run(a);
  PackCodesJob job{.outputs = packed ? kPanelRows : 1,
                   .apart = a.source_stride,
                   .bytes = (a.rows - run * rows) * a.source_stride,
                   .bits = to.format.bits,
                   .step = to.format.bits,
                   .of_word = a.words.across ? 1 : 0,
                   .cols = runs * kRunCols,
                   .to = run_in(to, a.first_row + first, a.first_col / kRunCols + run),
                   .to_apart = packed ? kPanelRows : 1};
  const std::byte* source = a.source + run * rows * a.source_stride;
  for (int64_t i = 0; i < job.outputs; ++i) {
    const int64_t o = first + i, behind = o + job.outputs;
    if (o < a.outputs) job.from[i] = source + word_of_output(a, o) * 4;
    if (behind < a.outputs) job.next[i] = source + word_of_output(a, behind) * 4;
    if (a.words.across && o < a.outputs)
      job.shifts[i] = static_cast<uint32_t>(place_across(a, a.output(o)));
  }
  return job;
}

// Lets a job read from the tile, which has all its words.
void read_from(const Tile& tile, const EncodeArgs& a, int64_t first, PackCodesJob& job) {
  for (int64_t i = 0; i < job.outputs; ++i) {
    job.next[i] = nullptr;
    if (job.from[i] != nullptr) job.from[i] = tile.at(word_of_output(a, first + i));
  }
  job.apart = Tile::kBytes;
}

void encode_codes(const EncodeArgs& a, PackCodes* pack) {
  const int64_t all = a.rows / rows_of_run(a);
  const bool tiled = a.words.across && a.output_run == 0 && a.first_output % 8 == 0;
  Tile tile;
  for (int64_t run = 0; run < all; run += kRunsAtOnce, tile.clear()) {
    const int64_t runs = std::min(kRunsAtOnce, all - run);
    for (int64_t first = 0; first < a.outputs;) {
      PackCodesJob job = job_of(a, first, run, runs);
      if (tiled) {
        const int64_t last = std::min(first + job.outputs, a.outputs) - 1;
        if (!tile.has(word_of_output(a, first)) || !tile.has(word_of_output(a, last)))
          tile.copy(a, run * rows_of_run(a), runs * rows_of_run(a), word_of_output(a, first));
        read_from(tile, a, first, job);
      }
      pack(job);
      first += job.outputs;
    }
  }
}

// Calls put(source row, first output, how many, place of the first in the plane) for outputs whose
// scales or zeros follow one another there: a panel's, or one alone.
template <class Put>
void for_outputs(const EncodeArgs& a, Put&& put) {
  const bool packed = a.to.format.layout == WeightLayout::packed;
  const int64_t groups = groups_of(a.to.format, a.to.cols), step = packed ? kPanelRows : 1;
  for (int64_t g = 0; g < a.rows; ++g) {
    for (int64_t o = 0; o < a.outputs; o += step) {
      const int64_t panel = (a.first_row + o) / step;
      put(a.source + g * a.source_stride, o, std::min(step, a.outputs - o),
          (panel * groups + a.first_group + g) * step);
    }
  }
}

// Puts zeros behind the last output of a panel that is not full, which has `count` numbers.
void fill_panel(const EncodeArgs& a, std::byte* to, int64_t count, int64_t size) {
  if (a.to.format.layout == WeightLayout::rows || count == kPanelRows) return;
  std::memset(to + count * size, 0, static_cast<size_t>((kPanelRows - count) * size));
}

void put_group_scales(const EncodeArgs& a) {
  const int64_t size = dtype_bytes(a.stored), run = a.output_run > 0 ? 1 : kPanelRows;
  for_outputs(a, [&](const std::byte* row, int64_t first, int64_t count, int64_t at) {
    std::byte* to = a.to.group_scales + at * size;
    for (int64_t i = 0; i < count; i += run)
      std::memcpy(to + i * size, row + a.output(first + i) * size,
                  static_cast<size_t>(std::min(run, count) * size));
    fill_panel(a, to, count, size);
  });
}

void put_group_zeros(const EncodeArgs& a) {
  const int bits = a.to.format.bits;
  for_outputs(a, [&](const std::byte* row, int64_t first, int64_t count, int64_t at) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t output = a.output(first + i);
      const int64_t bit =
          a.words.across ? output / 8 * kWordBits + place_across(a, output) : output * bits;
      const uint32_t zero = code_at(row, bit, bits) + static_cast<uint32_t>(a.words.added_to_zeros);
      a.to.zeros[at + i] = static_cast<std::byte>(zero & ((1u << bits) - 1));
    }
    fill_panel(a, a.to.zeros + at, count, 1);
  });
}

}  // namespace

void encode_grouped_columns(const EncodeArgs& a, PackCodes* pack) {
  const WeightFormat& format = a.to.format;
  const int bits = format.bits;
  check(a.to.plane(a.plane) != nullptr && a.rows >= 0, "a plane with storage");
  check(a.first_row >= 0 && a.first_row + a.outputs <= a.to.rows, "rows within the weight");
  check(format.layout == WeightLayout::rows || a.first_row % kPanelRows == 0,
        "outputs begin a panel");
  if (a.plane == Plane::codes) {
    check(a.stored == DType::u32 && a.rows % rows_of_run(a) == 0 && a.first_col % kRunCols == 0,
          "whole runs");
    check(a.first_col + a.rows / rows_of_run(a) * kRunCols <= a.to.cols,
          "columns within the weight");
    check(!a.words.across || bits == 4, "words of outputs have four bits");
    check(a.order == nullptr, "columns in the order of inputs");
    return encode_codes(a, pack);
  }
  check(a.first_group + a.rows <= groups_of(format, a.to.cols), "groups within the weight");
  if (a.plane == Plane::zeros) return put_group_zeros(a);
  check(a.plane == Plane::scales && a.stored == format.scale_type, "scales");
  put_group_scales(a);
}

EncodeStats grouped_column_stats(const EncodeArgs& a) {
  EncodeStats stats;
  if (a.plane == Plane::codes) stats.elements = a.outputs * (a.rows / rows_of_run(a)) * kRunCols;
  const int64_t run = a.output_run > 0 ? a.output_run : std::max<int64_t>(a.outputs, 1);
  const int64_t size = dtype_bytes(a.stored);
  for (int64_t g = 0; a.plane == Plane::scales && g < a.rows; ++g)
    for (int64_t o = 0; o < a.outputs; o += run)
      stats.not_finite +=
          count_not_finite(a.stored, a.source + g * a.source_stride + a.output(o) * size,
                           std::min(run, a.outputs - o));
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
