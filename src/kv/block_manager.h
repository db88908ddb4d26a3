// The blocks of the KV cache, in the memory where attention reads them (the device), and behind it
// in host memory and on disk, where what had to leave is kept until it is asked for again. A state
// machine: it says which contents have to be copied where, and moves none itself.
//
// Layers that keep the same tokens form a group (kv_layout.h): those that attend to all tokens, and
// those with a sliding window or chunks. A block belongs to one group of one sequence, or of
// several with the same prefix. Groups may have blocks of different sizes, multiples of the
// smallest.
//
// A state's group has one block a sequence, which each step changes. Nothing can be taken back from
// it, so that it is kept as it was at planned positions: a known beginning counts up to where every
// group has it, which is a border of all blocks and, with states, such a position.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/kv/block_pool.h"
#include "src/kv/kv_layout.h"
#include "src/kv/prefix_tree.h"

namespace sluice {

// The contents of one block that have to be in another before anything is written to either.
// Several are done in their order.
struct BlockCopy {
  BlockPlace from;
  BlockPlace to;
};

// Seconds, as they are predicted: what decides whether a block is kept elsewhere, and brought back,
// or computed again.
struct BlockCosts {
  double recompute = 1;                  // the tokens of a block, in all groups
  std::array<double, kTiers> store{};    // a block into a tier; of the device it is not asked
  std::array<double, kTiers> restore{};  // and from there
};

struct BlockOptions {
  int64_t block_size = 16;  // tokens: the smallest that a group has, of which others' are multiples
  std::vector<KvGroup> groups = {{}};
  std::array<int64_t, kTiers> blocks{};  // that each tier has room for
  BlockCosts costs;
  // Tokens from one position to the next at which states are kept; at least, as all groups' blocks
  // end there.
  int64_t snapshot_tokens = 0;
};

struct BlockStats {
  int64_t stored = 0;    // blocks that were copied to a further tier
  int64_t restored = 0;  // and back
  int64_t lost = 0;      // that somebody waited for, and no tier had room for
};

// What is known of a sequence's beginning, and is worth to be used.
struct PrefixMatch {
  std::vector<Prefix*> prefixes;  // of its first blocks
  int64_t in_use = 0;             // device blocks of these that others use already
};

class BlockManager {
 public:
  explicit BlockManager(BlockOptions options);
  int64_t block_size() const { return options_.block_size; }
  size_t groups() const { return options_.groups.size(); }
  bool is_state(size_t group) const { return options_.groups[group].kind == KvKind::state; }
  bool has_states() const { return has_states_; }
  // Tokens of a block; and in blocks of block_size().
  int64_t block_size(size_t group) const { return options_.groups[group].block_size; }
  int64_t multiple(size_t group) const {
    return is_state(group) ? 1 : block_size(group) / block_size();
  }
  // Tokens of whose multiples every group has whole blocks.
  int64_t common_block_size() const { return common_; }
  // Whether states are kept there; how many tokens a step may add without leaving one out.
  bool snapshot_at(int64_t position) const {
    return has_states_ && position > 0 && position % options_.snapshot_tokens == 0;
  }
  int64_t rows_to_snapshot(int64_t position) const {
    return has_states_ ? options_.snapshot_tokens - position % options_.snapshot_tokens : INT64_MAX;
  }
  int64_t size() const { return device().size(); }
  int64_t free_blocks() const { return device().free_blocks(); }
  int32_t uses(int32_t block) const { return device().uses(block); }
  BlockStats stats() const { return stats_; }

  // The first block that `group`, not a state's, still needs for a token at `position`.
  int64_t first_block(size_t group, int64_t position) const;
  // Blocks that a sequence of so many tokens has at most, if each step gives it `rows` of them.
  int64_t most_blocks(int64_t tokens, int64_t rows) const;

  // A device block with one use. What it held may have to be copied first. nullopt: none is free.
  std::optional<int32_t> take(std::vector<BlockCopy>& copies);
  // Whether a prefix is known to be in it, so that it must not be changed.
  bool holds(int32_t block) const { return held_[0][static_cast<size_t>(block)].prefix != nullptr; }
  bool has(const Prefix& prefix, size_t group) const;  // somewhere
  void share(int32_t block) { device().share(block); }
  void give_back(int32_t block) { device().give_back(block); }

  // The prefix that `ids` are after `parent`, of which the table is a user now. `blocks`: of each
  // group the device block that ends with it, or -1.
  Prefix& remember(Prefix* parent, uint64_t root, std::span<const int32_t> ids,
                   std::span<const int32_t> blocks);
  PrefixMatch match(uint64_t root, std::span<const int32_t> ids) const;
  // A use of the device blocks of each group that hold the prefixes of `match`; -1 where the group
  // does not need one. Those that lie elsewhere are brought back, for which there must be room.
  void adopt(const PrefixMatch& match, std::vector<std::vector<int32_t>>& blocks,
             std::vector<BlockCopy>& copies);
  void acquire(Prefix& prefix) { prefixes_.acquire(prefix); }
  void release(Prefix& prefix) { prefixes_.release(prefix); }
  // Somebody will ask for it: it stays wherever it goes.
  void want(Prefix& prefix, size_t group);
  void unwant(Prefix& prefix, size_t group);

  bool idle() const;  // nothing is in use or wanted

 private:
  struct Held {
    Prefix* prefix = nullptr;
    size_t group = 0;
  };

  const BlockPool& device() const { return pools_[0]; }
  BlockPool& device() { return pools_[0]; }
  BlockPool& pool(Tier tier) { return pools_[static_cast<size_t>(tier)]; }
  Held& held(BlockPlace place) {
    return held_[static_cast<size_t>(place.tier)][static_cast<size_t>(place.block)];
  }
  void hold(BlockPlace place, Held held);
  bool worth_storing(size_t tier) const;
  void evict(BlockPlace place, std::vector<BlockCopy>& copies);
  void store(BlockPlace from, Held what, std::vector<BlockCopy>& copies);
  double restore_cost(const Prefix::Group& group) const;
  // take(block, prefix) for the blocks that `group` needs after so many prefixes, of which each
  // ends with the prefix.
  template <class Take>
  void each_needed(size_t group, size_t prefixes, Take take) const;
  int64_t cheapest(std::span<Prefix* const> known, int64_t tokens) const;

  BlockOptions options_;
  bool has_states_ = false;
  int64_t common_ = 0;
  std::array<BlockPool, kTiers> pools_;
  std::array<std::vector<Held>, kTiers> held_;  // by the blocks of each
  PrefixTree prefixes_;
  BlockStats stats_;
};

}  // namespace sluice
