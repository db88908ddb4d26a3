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

// Exchanges the bytes in the middle, in words of codes.
uint32_t exchanged(const Places& places, int w, uint32_t word) {
  if (!places.is_codes(w)) return word;
  return (word & 0xff0000ff) | (word & 0xff00) << 8 | (word >> 8 & 0xff00);
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
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* row = rows[static_cast<size_t>(r)];
      const uint8_t* block = row != nullptr ? row + b * places.layout.bytes : kZeros;
      for (int w = 0; w < places.words; ++w) {
        uint32_t word;
        std::memcpy(&word, block + places.begin + w * 4, sizeof word);
        word = exchanged(places, w, word);
        std::memcpy(to + (w * kRows + r) * 4, &word, sizeof word);
      }
      std::copy_n(block + places.rest_at(), places.rest,
                  to + places.words * kRows * 4 + r * places.rest);
    }
  }
}

void take_block(DType type, const uint8_t* interleaved, int row, uint8_t* to) {
  const Places places(block_layout(type));
  for (int w = 0; w < places.words; ++w) {
    uint32_t word;
    std::memcpy(&word, interleaved + (w * kRows + row) * 4, sizeof word);
    word = exchanged(places, w, word);
    std::memcpy(to + places.begin + w * 4, &word, sizeof word);
  }
  std::copy_n(interleaved + places.words * kRows * 4 + row * places.rest, places.rest,
              to + places.rest_at());
}

}  // namespace sluice
