// The blocks that hold known tokens. A prefix is a whole block of tokens after the prefix before
// it; prefixes that begin alike share a path of the tree (as SGLang's RadixAttention,
// arXiv:2312.07104, and vLLM's automatic prefix caching). Tokens are compared, not only their
// hashes, so that a prefix is never another's. Bookkeeping only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "src/memory/tier.h"

namespace sluice {

inline constexpr size_t kTiers = 3;

struct BlockPlace {
  Tier tier = Tier::device;
  int32_t block = 0;
  bool operator==(const BlockPlace&) const = default;
};

struct Prefix {
  // The blocks of one group of layers.
  struct Group {
    std::array<int32_t, kTiers> block{-1, -1, -1};  // its block in each tier; -1: none
    int32_t wanted = 0;                             // waiting sequences that need it
  };

  Prefix* parent = nullptr;   // none: the first block of a sequence
  uint64_t root = 0;          // sequences of different roots share nothing
  std::vector<int32_t> ids;   // tokens of this block
  int64_t users = 0;          // block tables, and prefixes after it
  std::vector<Group> groups;  // none that nothing is known of at the end: few prefixes have states

  Group& at(size_t group) {
    if (groups.size() <= group) groups.resize(group + 1);
    return groups[group];
  }
  Group get(size_t group) const { return group < groups.size() ? groups[group] : Group{}; }
};

class PrefixTree {
 public:
  // Null where it is not known.
  Prefix* find(Prefix* parent, uint64_t root, std::span<const int32_t> ids) const;
  // Known from now on, with one user.
  Prefix& acquire(Prefix* parent, uint64_t root, std::span<const int32_t> ids);
  void acquire(Prefix& prefix) { ++prefix.users; }
  void release(Prefix& prefix);
  // Forgets it, and those before it, if it has neither users nor blocks.
  void drop_unused(Prefix& prefix);

 private:
  struct Key {
    const Prefix* parent = nullptr;
    uint64_t root = 0;
    std::span<const int32_t> ids;
  };
  static Key key(const Key& key) { return key; }
  static Key key(const std::unique_ptr<Prefix>& p) { return {p->parent, p->root, p->ids}; }
  struct Hash {
    using is_transparent = void;
    size_t operator()(const auto& of) const { return hash(key(of)); }
    static size_t hash(const Key& key);
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return same(key(a), key(b)); }
    static bool same(const Key& a, const Key& b);
  };

  std::unordered_set<std::unique_ptr<Prefix>, Hash, Equal> prefixes_;
};

}  // namespace sluice
