// The blocks of one sequence: of each group of layers, token position / block_size → block; of a
// state's the one that holds it. Several sequences may share those at their beginnings. Bookkeeping
// only.
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
      : manager_(&manager), root_(root), blocks_(manager.groups()), before_(manager.groups(), -1) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&&) = delete;
  ~BlockTable() { release(); }

  // Reserves blocks for `tokens` positions. Positions from `first`, the sequence's length, on are
  // going to be written: a block there that others use, too, is replaced by one to copy it to; so
  // is a state that a prefix holds. Blocks that no token from `first` on attends to are given back.
  // Returns false if the manager runs out of blocks; those that could be had are kept. Copies to be
  // made are added to `copies` in any case. With `rewindable`, states, and blocks that tokens from
  // `first` on attend to, stay until rewind(), also through later calls.
  bool reserve(int64_t first, int64_t tokens, std::vector<BlockCopy>& copies,
               bool rewindable = false);
  // Blocks that reserve() would take beside those that it gives back and nobody else uses.
  int64_t missing(int64_t first, int64_t tokens, bool rewindable = false) const;
  // Forgets the last tokens of a sequence of `length` tokens, none of them remembered. Returns the
  // most tokens up to `wanted` that it can go on from: `wanted` where nothing that is needed there
  // has been given back; with states where reserve() has kept them; or 0, with all blocks given
  // back.
  int64_t rewind(int64_t length, int64_t wanted);

  // The known prefix of `ids`, to adopt() before the manager changes.
  PrefixMatch match(std::span<const int32_t> ids) const { return manager_->match(root_, ids); }
  // Fills an empty table with `match`. Returns the number of its tokens.
  int64_t adopt(const PrefixMatch& match, std::vector<BlockCopy>& copies);
  // Lets others find the blocks that `ids`, all tokens stored, fill. If they end at a border, the
  // states are found, too, until a later such call; with `keep`, and at planned positions, for as
  // long as there is room.
  void remember(std::span<const int32_t> ids, bool keep = false);

  BlockTable fork() const;  // a table that shares all blocks
  // Gives all blocks back. If there is room their contents stay, in whatever tier, until they are
  // adopted again or released.
  void suspend();
  void begin_again(uint64_t root);  // as a new table of that root
  void release();                   // gives all blocks back
  // -1: a block that is not needed any more.
  const std::vector<int32_t>& blocks(size_t group = 0) const { return blocks_[group]; }
  int64_t blocks_held() const;
  int64_t blocks_held(size_t group) const;
  // block * block_size + offset, of the token's entry; -1: its window ends later.
  int64_t slot(size_t group, int64_t position) const;

 private:
  int64_t block_size() const { return manager_->block_size(); }
  bool reserve_tokens(size_t group, int64_t first, int64_t tokens, std::vector<BlockCopy>& copies);
  bool reserve_state(size_t group, std::vector<BlockCopy>& copies, bool rewindable);
  bool replace(int32_t& block, std::vector<BlockCopy>& copies);
  int64_t first_needed(size_t group, int64_t first) const;
  bool can_go_on(int64_t length) const;
  int64_t missing_tokens(size_t group, int64_t first, int64_t tokens) const;
  int64_t missing_states(size_t group, bool rewindable) const;
  void want(size_t prefix, size_t group);
  void give_back_blocks();
  void give_back_before();
  void give_up_wants();

  BlockManager* manager_;
  uint64_t root_;
  std::vector<std::vector<int32_t>> blocks_;  // of each group
  // Each group's block with the state at `before_length_` tokens; -1: none.
  std::vector<int32_t> before_;
  int64_t before_length_ = -1;     // where rewind() can go back to; -1: it was not asked for
  std::vector<Prefix*> prefixes_;  // of the first blocks, those that are remembered
  Prefix* replaceable_ = nullptr;  // the one of these whose states the next snapshot replaces
  struct Want {
    Prefix* prefix = nullptr;
    size_t group = 0;
  };
  std::vector<Want> wants_;  // of a suspended sequence
};

}  // namespace sluice
