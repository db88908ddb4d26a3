// The blocks of the KV cache, on the device, where attention reads them, and behind it in host
// memory and on disk, where evicted blocks are kept until they are needed again. A state machine:
// it decides which contents have to be copied where, and copies none itself.
//
// Layers that keep the same tokens form a group (kv_layout.h): those that attend to all tokens, and
// those with a sliding window or chunks. A block belongs to one group of one sequence, or of
// several with the same prefix. Groups may have blocks of different sizes, multiples of the
// smallest.
//
// A state's group has one block a sequence, which each step changes. A state cannot be rewound, so
// that snapshots are kept where a step ends at a border of all blocks: a known prefix ends where
// every group has it. A sequence's later snapshot replaces its earlier one, but for those at
// planned positions.
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

// A copy of one block's contents to another, before anything is written to either. Copies are
// executed in order.
struct BlockCopy {
  BlockPlace from;
  BlockPlace to;
};

// Predicted seconds, which decide whether a block is stored in another tier and restored, or
// recomputed.
struct BlockCosts {
  double recompute = 1;                  // the tokens of a block, in all groups
  std::array<double, kTiers> store{};    // a block into a tier; unused for the device
  std::array<double, kTiers> restore{};  // and from there
};

struct BlockOptions {
  int64_t block_size = 16;  // tokens: the smallest that a group has, of which others' are multiples
  std::vector<KvGroup> groups = {{}};
  std::array<int64_t, kTiers> blocks{};  // capacity of each tier
  BlockCosts costs;
  // Tokens between planned positions, at which snapshots of states stay; rounded up to where all
  // groups' blocks end.
  int64_t snapshot_tokens = 0;
};

struct BlockStats {
  int64_t stored = 0;    // blocks that were copied to a further tier
  int64_t restored = 0;  // and back
  int64_t lost = 0;      // wanted blocks that no tier had room for
};

// The known prefix of a sequence that is worth restoring.
struct PrefixMatch {
  std::vector<Prefix*> prefixes;  // prefixes of its first blocks
  int64_t in_use = 0;             // device blocks of these that others use already
};

class BlockManager {
 public:
  explicit BlockManager(BlockOptions options);
  int64_t block_size() const { return options_.block_size; }
  size_t groups() const { return options_.groups.size(); }
  bool is_state(size_t group) const { return options_.groups[group].kind == KvKind::state; }
  bool has_states() const { return states_ > 0; }
  // Tokens of a group's block; and the same in blocks of block_size().
  int64_t block_size(size_t group) const { return options_.groups[group].block_size; }
  // Tokens that an entry of the group's caches stands for.
  int64_t entry_tokens(size_t group) const { return options_.groups[group].tokens; }
  int64_t multiple(size_t group) const {
    return is_state(group) ? 1 : block_size(group) / block_size();
  }
  // The number of tokens at whose multiples all groups' blocks end.
  int64_t common_block_size() const { return common_; }
  // The last position up to `position` at which all groups' blocks end.
  int64_t last_border(int64_t position) const { return position / common_ * common_; }
  // snapshot_at: whether states are kept at `position`. is_planned: whether that is planned for
  // every sequence. rows_to_snapshot: the most tokens that a step may add up to there.
  bool snapshot_at(int64_t position) const {
    return has_states() && position > 0 && position % common_ == 0;
  }
  bool is_planned(int64_t position) const { return position % options_.snapshot_tokens == 0; }
  int64_t rows_to_snapshot(int64_t position) const {
    return has_states() ? options_.snapshot_tokens - position % options_.snapshot_tokens
                        : INT64_MAX;
  }
  int64_t size() const { return device().size(); }
  int64_t free_blocks() const { return device().free_blocks(); }
  int64_t kept_blocks() const { return device().kept_blocks(); }
  int32_t uses(int32_t block) const { return device().uses(block); }
  BlockStats stats() const { return stats_; }

  // The first block that `group`, not a state's, still needs for a token at `position`.
  int64_t first_block(size_t group, int64_t position) const;
  // The most blocks of a sequence of `tokens` tokens, if each step adds `rows` of them.
  int64_t most_blocks(int64_t tokens, int64_t rows) const;

  // Takes a device block, with one use; evicts what it held, by `copies`. nullopt: none is free.
  std::optional<int32_t> take(std::vector<BlockCopy>& copies);
  // Returns whether the block holds a known prefix, and so must not be changed.
  bool holds(int32_t block) const { return held_[0][static_cast<size_t>(block)].prefix != nullptr; }
  bool has(const Prefix& prefix, size_t group) const;  // somewhere
  void share(int32_t block) { device().share(block); }
  void give_back(int32_t block) { device().give_back(block); }

  // The prefix that `ids` are after `parent`, of which the table is a user now. `blocks`: of each
  // group the device block that ends with it, or -1.
  Prefix& remember(Prefix* parent, uint64_t root, std::span<const int32_t> ids,
                   std::span<const int32_t> blocks);
  PrefixMatch match(uint64_t root, std::span<const int32_t> ids) const;
  // Gives up a prefix's states, unless somebody waits for them.
  void forget_states(Prefix& prefix);
  // Adds a use to each group's device blocks of the prefixes of `match`; -1 where the group does
  // not need one. Blocks in other tiers are restored, for which there must be room.
  void adopt(const PrefixMatch& match, std::vector<std::vector<int32_t>>& blocks,
             std::vector<BlockCopy>& copies);
  void acquire(Prefix& prefix) { prefixes_.acquire(prefix); }
  void release(Prefix& prefix) { prefixes_.release(prefix); }
  // A preempted sequence will need the prefix: keeps its block in whatever tier it reaches.
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
  bool worth_storing(size_t tier, size_t group) const;
  void evict(BlockPlace place, std::vector<BlockCopy>& copies);
  void store(BlockPlace from, Held what, std::vector<BlockCopy>& copies);
  double restore_cost(const Prefix::Group& group) const;
  // take(block, prefix) for the blocks that `group` needs after so many prefixes, of which each
  // ends with the prefix.
  template <class Take>
  void each_needed(size_t group, size_t prefixes, Take take) const;
  int64_t cheapest(std::span<Prefix* const> known, int64_t tokens) const;

  BlockOptions options_;
  int64_t states_ = 0;  // groups of them
  int64_t common_ = 0;
  std::array<BlockPool, kTiers> pools_;
  std::array<std::vector<Held>, kTiers> held_;  // by the blocks of each
  PrefixTree prefixes_;
  BlockStats stats_;
};

}  // namespace sluice
