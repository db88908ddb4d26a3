#include "src/kv/prefix_tree.h"

#include <algorithm>
#include <functional>

#include "src/base/checksum.h"
#include "src/base/error.h"

namespace sluice {

size_t PrefixTree::Hash::hash(const Key& key) {
  uint64_t before = std::hash<const Prefix*>()(key.parent) ^ (key.root * 0x9E3779B97F4A7C15u);
  return checksum64(std::as_bytes(key.ids), before);
}

bool PrefixTree::Equal::same(const Key& a, const Key& b) {
  return a.parent == b.parent && a.root == b.root && std::ranges::equal(a.ids, b.ids);
}

Prefix* PrefixTree::find(Prefix* parent, uint64_t root, std::span<const int32_t> ids) const {
  auto found = prefixes_.find(Key{parent, root, ids});
  return found == prefixes_.end() ? nullptr : found->get();
}

Prefix& PrefixTree::acquire(Prefix* parent, uint64_t root, std::span<const int32_t> ids) {
  Prefix* known = find(parent, root, ids);
  if (known == nullptr) {
    auto fresh = std::make_unique<Prefix>(Prefix{parent, root, {ids.begin(), ids.end()}, 0, {}});
    known = fresh.get();
    prefixes_.insert(std::move(fresh));
    if (parent != nullptr) ++parent->users;
  }
  ++known->users;
  return *known;
}

void PrefixTree::release(Prefix& prefix) {
  check(prefix.users > 0, "a KV prefix was released twice");
  --prefix.users;
  drop_unused(prefix);
}

void PrefixTree::drop_unused(Prefix& last) {
  auto holds_nothing = [](const Prefix::Group& g) {
    return std::ranges::all_of(g.block, [](int32_t b) { return b < 0; });
  };
  for (Prefix* p = &last; p != nullptr && p->users == 0;) {
    if (!std::ranges::all_of(p->groups, holds_nothing)) return;
    Prefix* parent = p->parent;
    prefixes_.erase(prefixes_.find(Key{p->parent, p->root, p->ids}));
    if (parent != nullptr) --parent->users;
    p = parent;
  }
}

}  // namespace sluice
