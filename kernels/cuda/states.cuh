// Lookup of a sequence's state by a block of threads.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

// Some rows of one sequence, and its state.
struct StateChunk {
  int64_t row = 0;
  int64_t rows = 0;
  bool fresh = false;              // its state is zeros
  const int32_t* block = nullptr;  // of the first page
  int64_t stride = 0;              // to the next page's block
};

// The chunk of the block's number in x; false where that number is no chunk's first row.
__device__ inline bool find_chunk(const StateChunks& s, int64_t all_rows, StateChunk& chunk) {
  int64_t table;
  if (s.chunks != nullptr) {
    const PrefillChunk c = s.chunks[blockIdx.x];
    chunk.row = c.first_row;
    chunk.rows = c.rows;
    table = c.sequence;
  } else {
    chunk.row = blockIdx.x;
    table = s.sequences[chunk.row];
    if (chunk.row > 0 && s.sequences[chunk.row - 1] == table) return false;
    chunk.rows = 1;
    while (chunk.row + chunk.rows < all_rows && s.sequences[chunk.row + chunk.rows] == table)
      ++chunk.rows;
  }
  chunk.fresh = s.positions[chunk.row] == 0;
  chunk.block = s.tables + table;
  if (s.second != nullptr) chunk.stride = s.second[chunk.row] - s.sequences[chunk.row];
  return true;
}

__device__ inline float* state_row(const StateCache& c, const StateChunk& chunk, int64_t row) {
  const int64_t place = c.first_row + row, page = place / c.page_rows;
  std::byte* at = c.pages + chunk.block[page * chunk.stride] * c.page_bytes;
  return reinterpret_cast<float*>(at) + place % c.page_rows * c.cols;
}

}  // namespace sluice::cuda
