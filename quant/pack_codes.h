// Codes as files have them, into runs of grouped codes (quant/format.h). This is the reference;
// kernels/cpu/simd/pack_codes.cc has the fast ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace sluice {

// Outputs whose codes are packed together, each from words of 32 bits of its own or of several: a
// panel's, or one alone.
struct PackCodesJob {
  // Each output's first word, at any alignment; null: there is no such output, and its codes are 0.
  const std::byte* from[kPanelRows] = {};
  // The same of the outputs that are packed next, which are fetched meanwhile; null: nothing is.
  const std::byte* next[kPanelRows] = {};
  int64_t outputs = kPanelRows;      // of `from`
  int64_t apart = 4;                 // bytes from a word of an output to its next
  int64_t bytes = 0;                 // of an output's words where they lie together (apart is 4)
  uint32_t shifts[kPanelRows] = {};  // bits of each word before an output's
  int bits = 0;                      // of a code: 1 to 6, or 8
  int step = 0;                      // from a code of an output to its next: as many, or 8
  int of_word = 0;                 // codes of a word, whose upper bits are left over; 0: one stream
  bool high_first = false;         // the two halves of each byte change their places first
  uint32_t signs = 0;              // bits of a word that are turned then
  int64_t cols = 0;                // columns; behind them codes are those of words of 0
  const int32_t* order = nullptr;  // [cols]: the input that a column has; null: its own
  uint32_t* to = nullptr;          // the first output's first word
  int64_t to_apart = kPanelRows;   // words from one of a run to the next; outputs are neighbours
};
using PackCodes = void(const PackCodesJob& job);

void pack_codes(const PackCodesJob& job);

}  // namespace sluice
