#include "src/kv/block_pool.h"

#include <algorithm>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/error.h"

namespace sluice {

size_t BlockPool::KeyHash::operator()(const KeyView& key) const {
  return XXH3_64bits_withSeed(key.ids.data(), key.ids.size_bytes(), key.parent);
}

bool BlockPool::KeyEqual::same(const KeyView& a, const KeyView& b) {
  return a.parent == b.parent && std::ranges::equal(a.ids, b.ids);
}

BlockPool::BlockPool(int64_t blocks) : blocks_(static_cast<size_t>(blocks)), free_(blocks) {
  for (int64_t b = blocks - 1; b >= 0; --b) empty_.push_back(static_cast<int32_t>(b));
}

BlockPool::Block& BlockPool::at(int32_t block) { return blocks_[static_cast<size_t>(block)]; }

std::optional<int32_t> BlockPool::take() {
  int32_t block = oldest_;
  if (!empty_.empty()) {
    block = empty_.back();
    empty_.pop_back();
  } else if (block != kNone) {
    unlink(block);
    forget(block);
  } else {
    return std::nullopt;
  }
  at(block).uses = 1;
  --free_;
  return block;
}

void BlockPool::share(int32_t block) {
  Block& b = at(block);
  check(b.uses > 0 || b.prefix != 0, "a KV block without contents was shared");
  if (b.uses == 0) {
    unlink(block);
    --free_;
  }
  ++b.uses;
}

void BlockPool::give_back(int32_t block) {
  Block& b = at(block);
  check(b.uses > 0, "a KV block was given back twice");
  if (--b.uses > 0) return;
  ++free_;
  if (b.prefix == 0) {
    empty_.push_back(block);
  } else {
    link_newest(block);
  }
}

std::optional<BlockPool::Prefix> BlockPool::find(PrefixId parent,
                                                 std::span<const int32_t> ids) const {
  auto found = prefixes_.find(KeyView{parent, ids});
  return found == prefixes_.end() ? std::nullopt : std::optional(found->second);
}

PrefixId BlockPool::remember(int32_t block, PrefixId parent, std::span<const int32_t> ids) {
  Block& b = at(block);
  check(b.uses > 0, "a free KV block was filled");
  if (b.prefix != 0) return b.prefix;
  if (auto known = find(parent, ids)) return known->id;
  b.prefix = next_prefix_++;
  auto [entry, fresh] =
      prefixes_.emplace(Key{parent, {ids.begin(), ids.end()}}, Prefix{b.prefix, block});
  keys_[block] = &entry->first;
  return b.prefix;
}

void BlockPool::forget(int32_t block) {
  at(block).prefix = 0;
  auto key = keys_.find(block);
  prefixes_.erase(prefixes_.find(*key->second));
  keys_.erase(key);
}

void BlockPool::unlink(int32_t block) {
  Block& b = at(block);
  (b.older == kNone ? oldest_ : at(b.older).newer) = b.newer;
  (b.newer == kNone ? newest_ : at(b.newer).older) = b.older;
  b.older = b.newer = kNone;
}

void BlockPool::link_newest(int32_t block) {
  Block& b = at(block);
  b.older = newest_;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = block;
  newest_ = block;
}

}  // namespace sluice
