#include "src/kv/block_table.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      block_size_(other.block_size_),
      root_(other.root_),
      blocks_(std::exchange(other.blocks_, {})),
      prefixes_(std::exchange(other.prefixes_, {})) {}

int64_t BlockTable::missing(int64_t first, int64_t tokens) const {
  int64_t count = std::max<int64_t>(0, ceil_div(tokens, block_size_) - std::ssize(blocks_));
  for (int64_t b = first / block_size_; b < std::ssize(blocks_) && b * block_size_ < tokens; ++b)
    count += pool_->uses(blocks_[static_cast<size_t>(b)]) > 1;
  return count;
}

bool BlockTable::reserve(int64_t first, int64_t tokens, std::vector<BlockCopy>& copies) {
  for (int64_t b = first / block_size_; b < std::ssize(blocks_) && b * block_size_ < tokens; ++b) {
    int32_t& block = blocks_[static_cast<size_t>(b)];
    if (pool_->uses(block) == 1) continue;
    std::optional<int32_t> own = pool_->take();
    if (!own) return false;
    copies.push_back({block, *own});
    pool_->give_back(block);
    block = *own;
  }
  while (std::ssize(blocks_) < ceil_div(tokens, block_size_)) {
    std::optional<int32_t> block = pool_->take();
    if (!block) return false;
    blocks_.push_back(*block);
  }
  return true;
}

int64_t BlockTable::adopt_prefix(std::span<const int32_t> ids) {
  check(blocks_.empty(), "a KV prefix is adopted by a sequence that has begun");
  auto size = static_cast<size_t>(block_size_);
  for (size_t at = 0; at + size <= ids.size(); at += size) {
    auto prefix = pool_->find(last_prefix(), ids.subspan(at, size));
    if (!prefix) break;
    pool_->share(prefix->block);
    blocks_.push_back(prefix->block);
    prefixes_.push_back(prefix->id);
  }
  return std::ssize(blocks_) * block_size_;
}

void BlockTable::remember(std::span<const int32_t> ids) {
  auto size = static_cast<size_t>(block_size_);
  while ((prefixes_.size() + 1) * size <= ids.size()) {
    size_t b = prefixes_.size();
    prefixes_.push_back(pool_->remember(blocks_[b], last_prefix(), ids.subspan(b * size, size)));
  }
}

BlockTable BlockTable::fork() const {
  BlockTable copy(*pool_, block_size_, root_);
  copy.blocks_ = blocks_;
  copy.prefixes_ = prefixes_;
  for (int32_t block : blocks_) pool_->share(block);
  return copy;
}

// From the end, so that of a prefix that nobody uses the end goes first.
void BlockTable::release() {
  for (auto b = blocks_.rbegin(); b != blocks_.rend(); ++b) pool_->give_back(*b);
  blocks_.clear();
  prefixes_.clear();
}

int64_t BlockTable::slot(int64_t position) const {
  return blocks_[static_cast<size_t>(position / block_size_)] * block_size_ +
         position % block_size_;
}

}  // namespace sluice
