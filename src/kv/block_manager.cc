#include "src/kv/block_manager.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// The nearest tier that holds it; nullopt: none does.
std::optional<BlockPlace> nearest(const Prefix::Group& group) {
  for (size_t t = 0; t < kTiers; ++t)
    if (group.block[t] >= 0) return BlockPlace{static_cast<Tier>(t), group.block[t]};
  return std::nullopt;
}

}  // namespace

BlockManager::BlockManager(BlockOptions options)
    : options_(std::move(options)),
      pools_{BlockPool(options_.blocks[0]), BlockPool(options_.blocks[1]),
             BlockPool(options_.blocks[2])} {
  for (size_t t = 0; t < kTiers; ++t) held_[t].resize(static_cast<size_t>(options_.blocks[t]));
  common_ = block_size();
  for (size_t g = 0; g < groups(); ++g) {
    states_ += is_state(g) ? 1 : 0;
    if (is_state(g)) continue;
    check(block_size(g) % block_size() == 0, "blocks of a multiple of the smallest");
    common_ = std::lcm(common_, block_size(g));
  }
  int64_t& distance = options_.snapshot_tokens;
  distance = ceil_div(std::max<int64_t>(distance, 1), common_) * common_;
}

int64_t BlockManager::first_block(size_t group, int64_t position) const {
  const KvGroup& g = options_.groups[group];
  return first_attended(g.window, g.chunk, position) / g.block_size;
}

int64_t BlockManager::most_blocks(int64_t tokens, int64_t rows) const {
  int64_t sum = 0;
  for (const KvGroup& g : options_.groups) sum += sluice::most_blocks(g, tokens, rows);
  return sum;
}

bool BlockManager::has(const Prefix& prefix, size_t group) const {
  return nearest(prefix.get(group)).has_value();
}

template <class Take>
void BlockManager::each_needed(size_t group, size_t prefixes, Take take) const {
  auto count = static_cast<int64_t>(prefixes), each = multiple(group);
  if (count == 0) return;
  int64_t first = is_state(group) ? count - 1 : first_block(group, count * block_size());
  for (int64_t b = first; (b + 1) * each <= count; ++b)
    take(static_cast<size_t>(b), static_cast<size_t>((b + 1) * each - 1));
}

std::optional<int32_t> BlockManager::take(std::vector<BlockCopy>& copies) {
  std::optional<int32_t> block = device().take();
  if (block) evict({Tier::device, *block}, copies);
  return block;
}

void BlockManager::hold(BlockPlace place, Held what) {
  held(place) = what;
  what.prefix->at(what.group).block[static_cast<size_t>(place.tier)] = place.block;
  pool(place.tier).keep(place.block);
}

// The block was taken for something else: what it held goes further away, unless it is there.
void BlockManager::evict(BlockPlace place, std::vector<BlockCopy>& copies) {
  Held was = std::exchange(held(place), {});
  if (was.prefix == nullptr) return;
  Prefix::Group& group = was.prefix->at(was.group);
  group.block[static_cast<size_t>(place.tier)] = -1;
  // A user, lest it be forgotten when what comes after it makes room.
  prefixes_.acquire(*was.prefix);
  if (!nearest(group)) store(place, was, copies);
  prefixes_.release(*was.prefix);
}

// All groups' blocks of some tokens, or all pages of a state, which stand for all tokens since the
// planned position before.
bool BlockManager::worth_storing(size_t tier, size_t group) const {
  const BlockCosts& c = options_.costs;
  const auto states = static_cast<double>(states_), groups = static_cast<double>(this->groups());
  const double blocks = static_cast<double>(options_.snapshot_tokens / block_size());
  const double cost = c.store[tier] + c.restore[tier];
  return is_state(group) ? states * cost < blocks * c.recompute
                         : (groups - states) * cost < c.recompute;
}

void BlockManager::store(BlockPlace from, Held what, std::vector<BlockCopy>& copies) {
  Prefix::Group& group = what.prefix->at(what.group);
  for (size_t t = static_cast<size_t>(from.tier) + 1; t < kTiers; ++t) {
    if (!worth_storing(t, what.group)) continue;
    std::optional<int32_t> block = pools_[t].take();
    if (!block) continue;  // all that it holds is wanted
    BlockPlace to{static_cast<Tier>(t), *block};
    evict(to, copies);
    copies.push_back({from, to});
    hold(to, what);
    for (int32_t w = 1; w < group.wanted; ++w) pools_[t].share(*block);
    if (group.wanted == 0) pools_[t].give_back(*block);
    ++stats_.stored;
    return;
  }
  if (group.wanted > 0) ++stats_.lost;
}

Prefix& BlockManager::remember(Prefix* parent, uint64_t root, std::span<const int32_t> ids,
                               std::span<const int32_t> blocks) {
  Prefix& prefix = prefixes_.acquire(parent, root, ids);
  for (size_t g = 0; g < blocks.size(); ++g) {
    if (blocks[g] < 0 || prefix.get(g).block[0] >= 0) continue;
    BlockPlace place{Tier::device, blocks[g]};
    if (held(place).prefix == nullptr) hold(place, {&prefix, g});
  }
  return prefix;
}

void BlockManager::forget_states(Prefix& prefix) {
  for (size_t g = 0; g < prefix.groups.size(); ++g) {
    Prefix::Group& group = prefix.groups[g];
    if (!is_state(g) || group.wanted > 0) continue;
    for (size_t t = 0; t < kTiers; ++t) {
      const int32_t block = std::exchange(group.block[t], -1);
      if (block < 0) continue;
      held({static_cast<Tier>(t), block}) = {};
      pools_[t].forget(block);
    }
  }
}

double BlockManager::restore_cost(const Prefix::Group& group) const {
  std::optional<BlockPlace> place = nearest(group);
  if (!place) return std::numeric_limits<double>::infinity();
  return place->tier == Tier::device ? 0 : options_.costs.restore[static_cast<size_t>(place->tier)];
}

// Returns the number of known prefixes to begin with for the least cost of bringing their blocks
// back and computing the rest. A group with a window needs only the last of them, a state the very
// last.
int64_t BlockManager::cheapest(std::span<Prefix* const> known, int64_t tokens) const {
  auto token_cost = options_.costs.recompute / static_cast<double>(block_size());
  std::vector<std::vector<double>> sums(groups(), {0});   // of the first i prefixes' blocks
  std::vector<std::vector<int64_t>> gaps(groups(), {0});  // 1 + the last of them that is nowhere
  for (size_t g = 0; g < groups(); ++g) {
    for (size_t i = 0; i < known.size() && !is_state(g); ++i) {
      bool ends = (static_cast<int64_t>(i) + 1) % multiple(g) == 0;
      double cost = ends ? restore_cost(known[i]->get(g)) : 0;
      bool there = cost < std::numeric_limits<double>::infinity();
      sums[g].push_back(sums[g].back() + (there ? cost : 0));
      gaps[g].push_back(there ? gaps[g].back() : static_cast<int64_t>(i) + 1);
    }
  }
  int64_t best = 0;
  double least = token_cost * static_cast<double>(tokens);
  const auto step = static_cast<size_t>(common_ / block_size());
  for (size_t k = step; k <= known.size(); k += step) {
    auto stored = static_cast<int64_t>(k) * block_size();
    double cost = token_cost * static_cast<double>(tokens - stored);
    for (size_t g = 0; g < groups() && cost <= least; ++g) {
      if (is_state(g)) {
        cost += restore_cost(known[k - 1]->get(g));
        continue;
      }
      int64_t first = first_block(g, stored) * multiple(g);
      if (gaps[g][k] > first) cost = std::numeric_limits<double>::infinity();
      cost += sums[g][k] - sums[g][static_cast<size_t>(first)];
    }
    if (cost > least) continue;
    least = cost;
    best = static_cast<int64_t>(k);
  }
  return best;
}

PrefixMatch BlockManager::match(uint64_t root, std::span<const int32_t> ids) const {
  PrefixMatch match;
  auto size = static_cast<size_t>(block_size());
  Prefix* parent = nullptr;
  for (size_t at = 0; at + size <= ids.size(); at += size) {
    parent = prefixes_.find(parent, root, ids.subspan(at, size));
    if (parent == nullptr) break;
    match.prefixes.push_back(parent);
  }
  match.prefixes.resize(static_cast<size_t>(cheapest(match.prefixes, std::ssize(ids))));
  for (size_t g = 0; g < groups(); ++g) {
    each_needed(g, match.prefixes.size(), [&](size_t, size_t prefix) {
      int32_t block = match.prefixes[prefix]->get(g).block[0];
      if (block >= 0 && uses(block) > 0) ++match.in_use;
    });
  }
  return match;
}

void BlockManager::adopt(const PrefixMatch& match, std::vector<std::vector<int32_t>>& blocks,
                         std::vector<BlockCopy>& copies) {
  struct Missing {
    Held held;
    BlockPlace from;
    int32_t* to;
  };
  std::vector<Missing> missing;
  // First whatever is there gets a use, so that none of it makes room for the rest.
  for (size_t g = 0; g < groups(); ++g) {
    size_t known = match.prefixes.size() / static_cast<size_t>(multiple(g));
    if (is_state(g)) known = std::min<size_t>(known, 1);
    blocks[g].assign(known, -1);
    each_needed(g, match.prefixes.size(), [&](size_t b, size_t p) {
      Prefix& prefix = *match.prefixes[p];
      int32_t& block = blocks[g][is_state(g) ? 0 : b];
      std::optional<BlockPlace> place = nearest(prefix.get(g));
      check(place.has_value(), "a KV prefix is adopted that is nowhere");
      pool(place->tier).share(place->block);
      if (place->tier == Tier::device) {
        block = place->block;
      } else {
        missing.push_back({{&prefix, g}, *place, &block});
      }
    });
  }
  for (Missing& m : missing) {
    std::optional<int32_t> block = take(copies);
    check(block.has_value(), "no room for a KV prefix that was to fit");
    *m.to = *block;
  }
  // One after the other, so that they can be read at once.
  for (const Missing& m : missing) {
    BlockPlace to{Tier::device, *m.to};
    copies.push_back({m.from, to});
    pool(m.from.tier).give_back(m.from.block);
    hold(to, m.held);
    ++stats_.restored;
  }
}

void BlockManager::want(Prefix& prefix, size_t group) {
  Prefix::Group& g = prefix.at(group);
  ++g.wanted;
  for (size_t t = 1; t < kTiers; ++t)
    if (g.block[t] >= 0) pools_[t].share(g.block[t]);
}

void BlockManager::unwant(Prefix& prefix, size_t group) {
  Prefix::Group& g = prefix.at(group);
  check(g.wanted > 0, "a KV prefix is not wanted twice");
  --g.wanted;
  for (size_t t = 1; t < kTiers; ++t)
    if (g.block[t] >= 0) pools_[t].give_back(g.block[t]);
}

bool BlockManager::idle() const {
  return std::ranges::all_of(pools_,
                             [](const BlockPool& p) { return p.free_blocks() == p.size(); });
}

}  // namespace sluice
