#include "quant/blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "quant/format.h"

namespace sluice {
namespace {

constexpr int kRows = static_cast<int>(kPanelRows);
constexpr int kMostBytes = 210;

// Places of a block's parts in memory.
struct Places {
  explicit Places(const BlockLayout& l)
      : layout(l), words(l.bytes / 4), rest(l.bytes % 4), begin(l.rest_first ? rest : 0) {}
  bool is_codes(int word) const {
    return word >= layout.first_codes && word < layout.first_codes + layout.codes;
  }
  BlockLayout layout;
  int words;
  int rest;   // bytes
  int begin;  // of the words in a stored block
  int rest_at() const { return layout.rest_first ? 0 : words * 4; }
};

constexpr int kIndexes = 64;
template <class Kind>
constexpr std::array<int16_t, kIndexes> values_of() {
  std::array<int16_t, kIndexes> values{};
  for (int i = 0; i < kIndexes; ++i)
    values[static_cast<size_t>(i)] = static_cast<int16_t>(Kind::value(i));
  return values;
}

using FourWords [[gnu::vector_size(16)]] = uint32_t;
template <class Word>
Word exchange_middle(Word word) {
  return (word & 0xff0000ff) | (word & 0xff00) << 8 | (word >> 8 & 0xff00);
}

FourWords load_words(const uint8_t* from) {
  FourWords words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

// Words [first, first + 4) of four rows become four words of each of these rows.
void exchange_four(const Places& places, const uint8_t* const* rows, int first, uint8_t* to) {
  const int at = places.begin + first * 4;
  const FourWords a = load_words(rows[0] + at), b = load_words(rows[1] + at);
  const FourWords c = load_words(rows[2] + at), d = load_words(rows[3] + at);
  const FourWords low0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const FourWords low1 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const FourWords high0 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const FourWords high1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const FourWords words[4] = {__builtin_shufflevector(low0, low1, 0, 1, 4, 5),
                              __builtin_shufflevector(low0, low1, 2, 3, 6, 7),
                              __builtin_shufflevector(high0, high1, 0, 1, 4, 5),
                              __builtin_shufflevector(high0, high1, 2, 3, 6, 7)};
  for (int w = 0; w < 4; ++w) {
    const FourWords word = places.is_codes(first + w) ? exchange_middle(words[w]) : words[w];
    std::memcpy(to + (first + w) * kRows * 4, &word, sizeof word);
  }
}

// Words of 16 blocks, four at a time; the last four may overlap those before them.
void interleave_words(const Places& places, const std::array<const uint8_t*, kPanelRows>& rows,
                      uint8_t* to) {
  for (int row = 0; row < kRows; row += 4) {
    for (int w = 0; w + 4 <= places.words; w += 4)
      exchange_four(places, rows.data() + row, w, to + row * 4);
    if (places.words >= 4 && places.words % 4 != 0)
      exchange_four(places, rows.data() + row, places.words - 4, to + row * 4);
  }
  for (int w = 0; places.words < 4 && w < places.words; ++w) {
    for (int r = 0; r < kRows; ++r) {
      uint32_t word;
      std::memcpy(&word, rows[static_cast<size_t>(r)] + places.begin + w * 4, sizeof word);
      if (places.is_codes(w)) word = exchange_middle(word);
      std::memcpy(to + (w * kRows + r) * 4, &word, sizeof word);
    }
  }
}

// Bytes that are no whole word, of 16 blocks.
void interleave_rest(const Places& places, const std::array<const uint8_t*, kPanelRows>& rows,
                     uint8_t* to) {
  for (const uint8_t* row : rows) {
    for (int i = 0; i < places.rest; ++i) *to++ = row[places.rest_at() + i];
  }
}

}  // namespace

BlockTables block_tables(DType type) {
  BlockTables tables;
  with_block(type, [&]<class Kind>(Kind) {
    if constexpr (requires { Kind::value(0); }) {
      alignas(64) static constexpr std::array<int16_t, kIndexes> kValues = values_of<Kind>();
      tables.values = kValues.data();
    }
    if constexpr (requires { Kind::grid(); }) tables.grid = Kind::grid();
  });
  return tables;
}

void interleave_blocks(DType type, const std::array<const uint8_t*, 16>& rows, int64_t blocks,
                       uint8_t* to) {
  static constexpr uint8_t kZeros[kMostBytes] = {};
  const Places places(block_layout(type));
  for (int64_t b = 0; b < blocks; ++b, to += places.layout.bytes * kRows) {
    std::array<const uint8_t*, kPanelRows> block;
    for (size_t r = 0; r < block.size(); ++r)
      block[r] = rows[r] != nullptr ? rows[r] + b * places.layout.bytes : kZeros;
    interleave_words(places, block, to);
    interleave_rest(places, block, to + places.words * kRows * 4);
  }
}

void take_block(DType type, const uint8_t* interleaved, int row, uint8_t* to) {
  const Places places(block_layout(type));
  for (int w = 0; w < places.words; ++w) {
    uint32_t word;
    std::memcpy(&word, interleaved + (w * kRows + row) * 4, sizeof word);
    if (places.is_codes(w)) word = exchange_middle(word);
    std::memcpy(to + places.begin + w * 4, &word, sizeof word);
  }
  std::copy_n(interleaved + places.words * kRows * 4 + row * places.rest, places.rest,
              to + places.rest_at());
}

}  // namespace sluice
