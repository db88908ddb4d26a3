// Which blocks of the KV cache are in use, by how many, and which prefixes they hold. Bookkeeping
// only: no memory, no I/O.
//
// A full block may be remembered as a prefix: the tokens in it, after the prefix that the block
// before it holds. Blocks that nobody uses any more keep what they hold until they are taken for
// something else, the one that was used longest ago first (as vLLM's automatic prefix caching).
// Tokens are compared, not only their hashes, so that a prefix is never another's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace sluice {

// Tokens [0, n) of a sequence, n a multiple of the block size. Small numbers are roots, before any
// token: sequences of different roots share nothing.
using PrefixId = uint64_t;
inline constexpr PrefixId kFirstPrefix = PrefixId{1} << 40;

class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t free_blocks() const { return free_; }  // that nobody uses, with or without a prefix

  // A block with one use; nullopt: none is free.
  std::optional<int32_t> take();
  void share(int32_t block);      // one use more, of a block that is in use or holds a prefix
  void give_back(int32_t block);  // one use less
  int32_t uses(int32_t block) const { return blocks_[static_cast<size_t>(block)].uses; }

  struct Prefix {
    PrefixId id = 0;
    int32_t block = 0;
  };
  // The block that holds `ids` (a whole block of them) after `parent`.
  std::optional<Prefix> find(PrefixId parent, std::span<const int32_t> ids) const;
  // `block`, in use, now holds them. The prefix that they are: where another block holds the same
  // already, that one stays the one to find.
  PrefixId remember(int32_t block, PrefixId parent, std::span<const int32_t> ids);

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t uses = 0;
    int32_t older = kNone;  // of the free blocks with a prefix, by when they became free
    int32_t newer = kNone;
    PrefixId prefix = 0;  // 0: none that can be found
  };
  struct Key {
    PrefixId parent = 0;
    std::vector<int32_t> ids;
  };
  struct KeyView {
    PrefixId parent = 0;
    std::span<const int32_t> ids;
  };
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(const Key& key) const { return (*this)(KeyView{key.parent, key.ids}); }
    size_t operator()(const KeyView& key) const;
  };
  struct KeyEqual {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return same(view(a), view(b)); }
    static KeyView view(const Key& key) { return {key.parent, key.ids}; }
    static KeyView view(const KeyView& key) { return key; }
    static bool same(const KeyView& a, const KeyView& b);
  };

  Block& at(int32_t block);
  void forget(int32_t block);
  void unlink(int32_t block);
  void link_newest(int32_t block);

  std::vector<Block> blocks_;
  int64_t free_ = 0;
  std::vector<int32_t> empty_;  // free, without a prefix; taken from the back
  int32_t oldest_ = kNone;      // free, with a prefix
  int32_t newest_ = kNone;
  PrefixId next_prefix_ = kFirstPrefix;
  std::unordered_map<Key, Prefix, KeyHash, KeyEqual> prefixes_;
  std::unordered_map<int32_t, const Key*> keys_;  // of the blocks that can be found
};

}  // namespace sluice
