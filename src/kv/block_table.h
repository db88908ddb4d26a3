// The blocks of one sequence: of each group of layers, token position / block_size → block. Several
// sequences may share those at their beginnings. Bookkeeping only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/kv/block_manager.h"

namespace sluice {

class BlockTable {
 public:
  // The manager outlives the table. `root`: tables of different roots share no prefixes.
  BlockTable(BlockManager& manager, uint64_t root)
      : manager_(&manager), root_(root), blocks_(manager.groups()) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&&) = delete;
  ~BlockTable() { release(); }

  // Blocks for `tokens` positions, of which those from `first` on are going to be written: a block
  // there that others use, too, is replaced by one to copy it to. Blocks that no token from `first`
  // on looks at are given back. False where the manager runs out: what could be had is kept. What
  // has to be copied is added to `copies` in any case.
  bool reserve(int64_t first, int64_t tokens, std::vector<BlockCopy>& copies);
  // Blocks that reserve() would take beside those that it gives back and nobody else uses.
  int64_t missing(int64_t first, int64_t tokens) const;

  // What is known of `ids`, to adopt() before anything else happens to the manager.
  PrefixMatch match(std::span<const int32_t> ids) const { return manager_->match(root_, ids); }
  // Of an empty table. The tokens that it holds then.
  int64_t adopt(const PrefixMatch& match, std::vector<BlockCopy>& copies);
  // The blocks that `ids`, all tokens stored, fill can be found by others from now on.
  void remember(std::span<const int32_t> ids);

  BlockTable fork() const;  // a table that shares all blocks
  // Gives all blocks back. What they hold stays, in whatever tier, until it is adopted again or
  // released, if there is room.
  void suspend();
  void release();  // gives all blocks back
  // -1: a block that is not needed any more.
  const std::vector<int32_t>& blocks(size_t group = 0) const { return blocks_[group]; }
  int64_t blocks_held() const;
  int64_t slot(size_t group, int64_t position) const;  // block * block_size + offset

 private:
  int64_t block_size() const { return manager_->block_size(); }
  void give_back_blocks();
  void give_up_wants();

  BlockManager* manager_;
  uint64_t root_;
  std::vector<std::vector<int32_t>> blocks_;  // of each group
  std::vector<Prefix*> prefixes_;             // of the first blocks, those that are remembered
  struct Want {
    Prefix* prefix = nullptr;
    size_t group = 0;
  };
  std::vector<Want> wants_;  // of a suspended sequence
};

}  // namespace sluice
