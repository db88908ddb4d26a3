#include "quant/blocks.h"

#include <cstring>

#include "quant/format.h"

namespace sluice {
namespace {

constexpr int kRows = static_cast<int>(kPanelRows);
constexpr int kMostBytes = 210;

// Places of a block's parts in memory.
struct Places {
  explicit Places(const BlockLayout& l)
      : layout(l), words(l.bytes / 4), half(l.bytes % 4 != 0), begin(l.half_first ? 2 : 0) {}
  bool is_codes(int word) const {
    return word >= layout.first_codes && word < layout.first_codes + layout.codes;
  }
  BlockLayout layout;
  int words;
  bool half;
  int begin;  // of the words in a stored block
  int half_at() const { return layout.half_first ? 0 : words * 4; }
};

uint32_t exchange_middle(uint32_t word) {
  return (word & 0xff0000ff) | (word & 0xff00) << 8 | (word >> 8 & 0xff00);
}

}  // namespace

void interleave_blocks(DType type, const uint8_t* const from[16], uint8_t* to) {
  static constexpr uint8_t kZeros[kMostBytes] = {};
  const Places places(block_layout(type));
  for (int r = 0; r < kRows; ++r) {
    const uint8_t* row = from[r] != nullptr ? from[r] : kZeros;
    for (int w = 0; w < places.words; ++w) {
      uint32_t word;
      std::memcpy(&word, row + places.begin + w * 4, sizeof word);
      if (places.is_codes(w)) word = exchange_middle(word);
      std::memcpy(to + (w * kRows + r) * 4, &word, sizeof word);
    }
    if (places.half) std::memcpy(to + places.words * kRows * 4 + r * 2, row + places.half_at(), 2);
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
  if (places.half)
    std::memcpy(to + places.half_at(), interleaved + places.words * kRows * 4 + row * 2, 2);
}

}  // namespace sluice
