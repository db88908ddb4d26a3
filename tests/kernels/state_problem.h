// Random steps of sequences with states, in pages of which each holds a part of one.
#pragma once

#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tests/support/random.h"

namespace sluice::test {

// The chunks of a step, in each group of a state's pages.
struct StateStep {
  StateCache cache;  // without memory
  std::vector<std::vector<SequenceChunk>> chunks;
  std::vector<std::vector<int32_t>> blocks;  // of each group
  std::vector<KvRows> groups;

  StateStep(StateCache of, const std::vector<std::pair<int64_t, int64_t>>& rows_at) : cache(of) {
    const auto pages = static_cast<size_t>(state_pages(cache));
    cache.blocks = static_cast<int64_t>(pages * rows_at.size());
    blocks.resize(pages);
    chunks.resize(pages);
    for (size_t p = 0; p < pages; ++p) {
      for (size_t i = 0; i < rows_at.size(); ++i)  // neighbours are another's
        blocks[p].push_back(static_cast<int32_t>(p + (rows_at.size() - 1 - i) * pages));
      int64_t row = 0;
      for (size_t i = 0; i < rows_at.size(); ++i) {
        const auto [rows, position] = rows_at[i];
        chunks[p].push_back({row, rows, position, {&blocks[p][i], 1}});
        row += rows;
      }
    }
    for (const auto& of_page : chunks) groups.push_back({of_page, {}});
  }
  int64_t rows() const { return chunks[0].back().first_row + chunks[0].back().rows; }
  size_t floats() const { return static_cast<size_t>(cache.blocks * cache.page_bytes / 4); }
  // The needs of a backend for the step; `key_dim`: of a recurrence's heads.
  WorkspaceNeeds needs(int64_t key_dim = 0) const {
    return {.max_rows = rows(),
            .max_cols = 8,
            .state_keys = key_dim,
            .groups = std::ssize(groups),
            .sequences = std::ssize(chunks[0])};
  }
  StateRows in(std::byte* pages) const {
    StateRows state{cache, groups};
    state.cache.pages = pages;
    return state;
  }
};

// A cache for such states, with `page_rows` rows in a page and the first at `first_row`.
inline StateCache state_cache(int64_t rows, int64_t cols, int64_t page_rows, int64_t first_row) {
  return {.page_bytes = page_rows * cols * 4 + 8,
          .rows = rows,
          .cols = cols,
          .first_row = first_row,
          .page_rows = page_rows};
}

}  // namespace sluice::test
