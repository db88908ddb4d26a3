#include "src/kv/block_table.h"

#include <algorithm>
#include <optional>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : manager_(other.manager_),
      root_(other.root_),
      blocks_(std::exchange(other.blocks_,
                            std::vector<std::vector<int32_t>>(other.manager_->groups()))),
      before_(std::exchange(other.before_, std::vector<int32_t>(other.manager_->groups(), -1))),
      before_length_(std::exchange(other.before_length_, -1)),
      prefixes_(std::exchange(other.prefixes_, {})),
      replaceable_(std::exchange(other.replaceable_, nullptr)),
      wants_(std::exchange(other.wants_, {})) {}

// The first block that tokens from `first` on look at, or those that are computed again after
// rewind().
int64_t BlockTable::first_needed(size_t group, int64_t first) const {
  if (before_length_ >= 0) first = std::min(first, before_length_);
  return std::min(manager_->first_block(group, first), std::ssize(blocks_[group]));
}

int64_t BlockTable::missing_tokens(size_t group, int64_t first, int64_t tokens) const {
  const std::vector<int32_t>& blocks = blocks_[group];
  int64_t size = manager_->block_size(group), end = ceil_div(tokens, size);
  int64_t count = std::max<int64_t>(0, end - std::ssize(blocks));
  for (int64_t b = first / size; b < std::min(end, std::ssize(blocks)); ++b)
    count += manager_->uses(blocks[static_cast<size_t>(b)]) > 1;
  for (int64_t b = first_needed(group, first) - 1; b >= 0 && blocks[static_cast<size_t>(b)] >= 0;
       --b)
    count -= manager_->uses(blocks[static_cast<size_t>(b)]) == 1;
  return count;
}

int64_t BlockTable::missing_states(size_t group, bool rewindable) const {
  if (blocks_[group].empty()) return 1;
  if (before_[group] >= 0) return 0;
  return rewindable || manager_->uses(blocks_[group].front()) > 1 ? 1 : 0;
}

int64_t BlockTable::missing(int64_t first, int64_t tokens, bool rewindable) const {
  int64_t count = 0;
  const bool begins = rewindable && first > 0 && (before_length_ < 0 || before_length_ == first);
  for (size_t g = 0; g < blocks_.size(); ++g)
    count += manager_->is_state(g) ? missing_states(g, begins) : missing_tokens(g, first, tokens);
  return count;
}

// Replaces a block by one of the table's own, with the same contents.
bool BlockTable::replace(int32_t& block, std::vector<BlockCopy>& copies) {
  std::optional<int32_t> own = manager_->take(copies);
  if (!own) return false;
  copies.push_back({{Tier::device, block}, {Tier::device, *own}});
  block = *own;
  return true;
}

bool BlockTable::reserve_tokens(size_t group, int64_t first, int64_t tokens,
                                std::vector<BlockCopy>& copies) {
  std::vector<int32_t>& blocks = blocks_[group];
  int64_t size = manager_->block_size(group), end = ceil_div(tokens, size);
  for (int64_t b = first / size; b < std::min(end, std::ssize(blocks)); ++b) {
    int32_t& block = blocks[static_cast<size_t>(b)];
    int32_t shared = block;
    if (manager_->uses(shared) == 1) continue;
    if (!replace(block, copies)) return false;
    manager_->give_back(shared);
  }
  while (std::ssize(blocks) < end) {
    std::optional<int32_t> block = manager_->take(copies);
    if (!block) return false;
    blocks.push_back(*block);
  }
  return true;
}

bool BlockTable::reserve_state(size_t group, std::vector<BlockCopy>& copies, bool rewindable) {
  std::vector<int32_t>& blocks = blocks_[group];
  if (blocks.empty()) {
    std::optional<int32_t> block = manager_->take(copies);
    if (block) blocks.push_back(*block);
    return block.has_value();
  }
  if (before_[group] >= 0) return true;
  int32_t& block = blocks.front();
  const int32_t old = block;
  if (rewindable) {
    if (!replace(block, copies)) return false;
    before_[group] = old;
  } else if (manager_->uses(old) > 1) {
    if (!replace(block, copies)) return false;
    manager_->give_back(old);
  } else if (manager_->holds(old)) {
    // Free now, it may be the one that is taken: what it holds has gone elsewhere then, or is lost.
    manager_->give_back(old);
    std::optional<int32_t> own = manager_->take(copies);
    check(own.has_value(), "a block that has been given back is free");
    if (*own != old) copies.push_back({{Tier::device, old}, {Tier::device, *own}});
    block = *own;
  }
  return true;
}

bool BlockTable::reserve(int64_t first, int64_t tokens, std::vector<BlockCopy>& copies,
                         bool rewindable) {
  if (rewindable && before_length_ < 0) before_length_ = first;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    if (manager_->is_state(g)) continue;
    for (int64_t b = first_needed(g, first) - 1; b >= 0 && blocks_[g][static_cast<size_t>(b)] >= 0;
         --b)
      manager_->give_back(std::exchange(blocks_[g][static_cast<size_t>(b)], -1));
  }
  const bool begins = rewindable && first > 0 && before_length_ == first;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    bool done = manager_->is_state(g) ? reserve_state(g, copies, begins)
                                      : reserve_tokens(g, first, tokens, copies);
    if (!done) return false;
  }
  return true;
}

// Blocks are given back from the front, so that those after one that is there are, too.
bool BlockTable::can_go_on(int64_t length) const {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    if (manager_->is_state(g)) return false;
    const int64_t first = manager_->first_block(g, length);
    if (first < std::ssize(blocks_[g]) && blocks_[g][static_cast<size_t>(first)] < 0) return false;
  }
  return true;
}

int64_t BlockTable::rewind(int64_t length, int64_t wanted) {
  if (wanted == length || can_go_on(wanted)) {
    give_back_before();
    return wanted;
  }
  if (before_length_ < 0 || before_length_ > wanted) {
    give_back_blocks();
    for (auto p = prefixes_.rbegin(); p != prefixes_.rend(); ++p) manager_->release(**p);
    prefixes_.clear();
    replaceable_ = nullptr;
    return 0;
  }
  for (size_t g = 0; g < blocks_.size(); ++g) {
    if (!manager_->is_state(g)) continue;
    for (int32_t block : blocks_[g]) manager_->give_back(block);
    blocks_[g].clear();
    if (before_[g] >= 0) blocks_[g].push_back(std::exchange(before_[g], -1));
  }
  return std::exchange(before_length_, -1);
}

void BlockTable::give_back_before() {
  for (int32_t& block : before_)
    if (block >= 0) manager_->give_back(std::exchange(block, -1));
  before_length_ = -1;
}

int64_t BlockTable::adopt(const PrefixMatch& match, std::vector<BlockCopy>& copies) {
  check(prefixes_.empty() && blocks_held() == 0, "a sequence that has begun adopts a KV prefix");
  for (Prefix* prefix : match.prefixes) manager_->acquire(*prefix);
  prefixes_ = match.prefixes;
  manager_->adopt(match, blocks_, copies);
  give_up_wants();
  return std::ssize(prefixes_) * block_size();
}

void BlockTable::remember(std::span<const int32_t> ids, bool keep) {
  auto size = static_cast<size_t>(block_size());
  std::vector<int32_t> held(blocks_.size());
  while ((prefixes_.size() + 1) * size <= ids.size()) {
    size_t b = prefixes_.size();
    const bool snapshot = (b + 1) * size == ids.size() && manager_->snapshot_at(std::ssize(ids));
    for (size_t g = 0; g < blocks_.size(); ++g) {
      const auto each = static_cast<size_t>(manager_->multiple(g));
      if (manager_->is_state(g)) {
        held[g] = snapshot ? blocks_[g].front() : -1;
      } else {
        held[g] = (b + 1) % each == 0 ? blocks_[g][b / each] : -1;
      }
    }
    Prefix* parent = prefixes_.empty() ? nullptr : prefixes_.back();
    prefixes_.push_back(&manager_->remember(parent, root_, ids.subspan(b * size, size), held));
    if (!snapshot) continue;
    if (replaceable_ != nullptr) manager_->forget_states(*replaceable_);
    replaceable_ = keep || manager_->is_planned(std::ssize(ids)) ? nullptr : prefixes_.back();
  }
}

BlockTable BlockTable::fork() const {
  BlockTable copy(*manager_, root_);
  copy.blocks_ = blocks_;
  copy.prefixes_ = prefixes_;
  for (Prefix* prefix : prefixes_) manager_->acquire(*prefix);
  for (const std::vector<int32_t>& blocks : blocks_)
    for (int32_t block : blocks)
      if (block >= 0) manager_->share(block);
  return copy;
}

// Gives back from the end, so that the end of an unused prefix goes first.
void BlockTable::give_back_blocks() {
  for (std::vector<int32_t>& blocks : blocks_) {
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b)
      if (*b >= 0) manager_->give_back(*b);
    blocks.clear();
  }
  give_back_before();
}

void BlockTable::want(size_t prefix, size_t group) {
  manager_->acquire(*prefixes_[prefix]);
  manager_->want(*prefixes_[prefix], group);
  wants_.push_back({prefixes_[prefix], group});
}

// Wants the blocks of all prefixes, even where another block holds the prefix too: that one may go
// first. For a state only the last snapshot is wanted.
void BlockTable::suspend() {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    if (manager_->is_state(g)) {
      for (size_t p = prefixes_.size(); p-- > 0;) {
        if (!manager_->has(*prefixes_[p], g)) continue;
        want(p, g);
        break;
      }
      continue;
    }
    const auto each = static_cast<size_t>(manager_->multiple(g));
    for (size_t b = 0; (b + 1) * each <= prefixes_.size(); ++b)
      if (blocks_[g][b] >= 0) want((b + 1) * each - 1, g);
  }
  give_back_blocks();
  for (Prefix* prefix : prefixes_) manager_->release(*prefix);
  prefixes_.clear();
  replaceable_ = nullptr;
}

void BlockTable::give_up_wants() {
  for (const Want& w : wants_) {
    manager_->unwant(*w.prefix, w.group);
    manager_->release(*w.prefix);
  }
  wants_.clear();
}

void BlockTable::release() {
  give_back_blocks();
  // Later prefixes are users of earlier ones, so the last goes first.
  for (auto p = prefixes_.rbegin(); p != prefixes_.rend(); ++p) manager_->release(**p);
  prefixes_.clear();
  replaceable_ = nullptr;
  give_up_wants();
}

void BlockTable::begin_again(uint64_t root) {
  release();
  root_ = root;
}

int64_t BlockTable::blocks_held(size_t group) const {
  int64_t count = before_[group] >= 0 ? 1 : 0;
  return count + std::ranges::count_if(blocks_[group], [](int32_t b) { return b >= 0; });
}

int64_t BlockTable::blocks_held() const {
  int64_t count = 0;
  for (size_t g = 0; g < blocks_.size(); ++g) count += blocks_held(g);
  return count;
}

int64_t BlockTable::slot(size_t group, int64_t position) const {
  const int64_t size = manager_->block_size(group), of_entry = manager_->entry_tokens(group);
  if ((position + 1) % of_entry != 0) return -1;
  const int32_t block = blocks_[group][static_cast<size_t>(position / size)];
  return (block * size + position % size) / of_entry;
}

}  // namespace sluice
