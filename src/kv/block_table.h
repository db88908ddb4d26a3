// The blocks of one sequence: token position / block_size → block. Several sequences may share
// those at their beginnings. Bookkeeping only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/kv/block_pool.h"

namespace sluice {

// The contents of one block that have to be in another before it is written.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

class BlockTable {
 public:
  // The pool outlives the table. `root`: tables of different roots share no prefixes.
  BlockTable(BlockPool& pool, int64_t block_size, PrefixId root = 0)
      : pool_(&pool), block_size_(block_size), root_(root) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&&) = delete;
  ~BlockTable() { release(); }

  // Blocks for `tokens` positions, of which those from `first` on are going to be written: a block
  // there that others use, too, is replaced by one to copy it to. False where the pool runs out:
  // what could be had is kept, and the copies that this takes are in `copies` in any case.
  bool reserve(int64_t first, int64_t tokens, std::vector<BlockCopy>& copies);
  // Blocks that reserve() would take.
  int64_t missing(int64_t first, int64_t tokens) const;

  // Of an empty table: shares the blocks that hold the longest known prefix of `ids`. Tokens that
  // it holds.
  int64_t adopt_prefix(std::span<const int32_t> ids);
  // The blocks that `ids`, all tokens stored, fill can be found by others from now on.
  void remember(std::span<const int32_t> ids);

  BlockTable fork() const;  // a table that shares all blocks
  void release();           // gives all blocks back
  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t slot(int64_t position) const;  // block * block_size + offset

 private:
  PrefixId last_prefix() const { return prefixes_.empty() ? root_ : prefixes_.back(); }

  BlockPool* pool_;
  int64_t block_size_;
  PrefixId root_;
  std::vector<int32_t> blocks_;
  std::vector<PrefixId> prefixes_;  // of the first blocks, those that can be found or have been
};

}  // namespace sluice
