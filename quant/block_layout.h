// The parts that the blocks of GGUF have in common. A type's block is a specialization of Block, in
// quant/blocks.h or quant/table_blocks.h.
#pragma once

#include <cstdint>

#include "quant/float8.h"
#include "src/base/dtype.h"

namespace sluice {

SLUICE_HD inline float f16_at(const uint8_t* p) {
  return f16_to_float(static_cast<uint16_t>(p[0] | p[1] << 8));
}

// Places of the parts of a block, as the packed layout needs them.
struct BlockLayout {
  int cols = 0;
  int bytes = 0;
  int group_cols = 0;  // that share a scale and a minimum
  bool mins = false;
  bool rest_first = false;  // bytes that are no whole word: before the words; else behind them
  // Words of codes, [first, first + count); of the others bytes keep their places.
  int first_codes = 0;
  int codes = 0;
  // Added to codes to make them the unsigned bytes by which few rows are multiplied; -1: they are
  // not multiplied so.
  int zero = -1;
  int most_code = 255;  // the largest magnitude, or more
};

template <DType>
struct Block;

}  // namespace sluice
