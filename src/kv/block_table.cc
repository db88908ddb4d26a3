#include "src/kv/block_table.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : manager_(other.manager_),
      root_(other.root_),
      blocks_(std::exchange(other.blocks_,
                            std::vector<std::vector<int32_t>>(other.manager_->groups()))),
      prefixes_(std::exchange(other.prefixes_, {})),
      wants_(std::exchange(other.wants_, {})) {}

int64_t BlockTable::missing(int64_t first, int64_t tokens) const {
  int64_t end = ceil_div(tokens, block_size());
  int64_t count = 0;
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const std::vector<int32_t>& blocks = blocks_[g];
    count += std::max<int64_t>(0, end - std::ssize(blocks));
    for (int64_t b = first / block_size(); b < std::min(end, std::ssize(blocks)); ++b)
      count += manager_->uses(blocks[static_cast<size_t>(b)]) > 1;
    int64_t needed = std::min(manager_->first_block(g, first), std::ssize(blocks));
    for (int64_t b = needed - 1; b >= 0 && blocks[static_cast<size_t>(b)] >= 0; --b)
      count -= manager_->uses(blocks[static_cast<size_t>(b)]) == 1;
  }
  return count;
}

bool BlockTable::reserve(int64_t first, int64_t tokens, std::vector<BlockCopy>& copies) {
  int64_t end = ceil_div(tokens, block_size());
  for (size_t g = 0; g < blocks_.size(); ++g) {
    int64_t needed = std::min(manager_->first_block(g, first), std::ssize(blocks_[g]));
    for (int64_t b = needed - 1; b >= 0 && blocks_[g][static_cast<size_t>(b)] >= 0; --b)
      manager_->give_back(std::exchange(blocks_[g][static_cast<size_t>(b)], -1));
  }
  for (std::vector<int32_t>& blocks : blocks_) {
    for (int64_t b = first / block_size(); b < std::min(end, std::ssize(blocks)); ++b) {
      int32_t& block = blocks[static_cast<size_t>(b)];
      if (manager_->uses(block) == 1) continue;
      std::optional<int32_t> own = manager_->take(copies);
      if (!own) return false;
      copies.push_back({{Tier::device, block}, {Tier::device, *own}});
      manager_->give_back(block);
      block = *own;
    }
    while (std::ssize(blocks) < end) {
      std::optional<int32_t> block = manager_->take(copies);
      if (!block) return false;
      blocks.push_back(*block);
    }
  }
  return true;
}

int64_t BlockTable::adopt(const PrefixMatch& match, std::vector<BlockCopy>& copies) {
  check(prefixes_.empty() && blocks_held() == 0, "a sequence that has begun adopts a KV prefix");
  for (Prefix* prefix : match.prefixes) manager_->acquire(*prefix);
  prefixes_ = match.prefixes;
  manager_->adopt(match, blocks_, copies);
  give_up_wants();
  return std::ssize(prefixes_) * block_size();
}

void BlockTable::remember(std::span<const int32_t> ids) {
  auto size = static_cast<size_t>(block_size());
  std::vector<int32_t> held(blocks_.size());
  while ((prefixes_.size() + 1) * size <= ids.size()) {
    size_t b = prefixes_.size();
    for (size_t g = 0; g < blocks_.size(); ++g) held[g] = blocks_[g][b];
    Prefix* parent = prefixes_.empty() ? nullptr : prefixes_.back();
    prefixes_.push_back(&manager_->remember(parent, root_, ids.subspan(b * size, size), held));
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

// From the end, so that of a prefix that nobody uses the end goes first.
void BlockTable::give_back_blocks() {
  for (std::vector<int32_t>& blocks : blocks_) {
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b)
      if (*b >= 0) manager_->give_back(*b);
    blocks.clear();
  }
}

// Of a prefix that another block holds, too, it is wanted all the same: that one may go first.
void BlockTable::suspend() {
  for (size_t g = 0; g < blocks_.size(); ++g) {
    for (size_t b = 0; b < prefixes_.size(); ++b) {
      if (blocks_[g][b] < 0) continue;
      manager_->acquire(*prefixes_[b]);
      manager_->want(*prefixes_[b], g);
      wants_.push_back({prefixes_[b], g});
    }
  }
  give_back_blocks();
  for (Prefix* prefix : prefixes_) manager_->release(*prefix);
  prefixes_.clear();
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
  // Those after it are its users, so that the last goes first.
  for (auto p = prefixes_.rbegin(); p != prefixes_.rend(); ++p) manager_->release(**p);
  prefixes_.clear();
  give_up_wants();
}

int64_t BlockTable::blocks_held() const {
  int64_t count = 0;
  for (const std::vector<int32_t>& blocks : blocks_)
    count += std::ranges::count_if(blocks, [](int32_t b) { return b >= 0; });
  return count;
}

int64_t BlockTable::slot(size_t group, int64_t position) const {
  int32_t block = blocks_[group][static_cast<size_t>(position / block_size())];
  return block * block_size() + position % block_size();
}

}  // namespace sluice
