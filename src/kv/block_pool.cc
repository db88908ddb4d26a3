#include "src/kv/block_pool.h"

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

BlockPool::BlockPool(int64_t blocks) : taken_(static_cast<size_t>(blocks), false) {
  for (int64_t b = blocks - 1; b >= 0; --b) free_.push_back(static_cast<int32_t>(b));
}

std::optional<int32_t> BlockPool::take() {
  if (free_.empty()) return std::nullopt;
  int32_t block = free_.back();
  free_.pop_back();
  taken_[static_cast<size_t>(block)] = true;
  return block;
}

void BlockPool::give_back(int32_t block) {
  check(taken_[static_cast<size_t>(block)], "a KV block was given back twice");
  taken_[static_cast<size_t>(block)] = false;
  free_.push_back(block);
}

BlockTable::~BlockTable() {
  for (auto b = blocks_.rbegin(); b != blocks_.rend(); ++b) pool_->give_back(*b);
}

bool BlockTable::reserve(int64_t tokens) {
  while (static_cast<int64_t>(blocks_.size()) < ceil_div(tokens, block_size_)) {
    std::optional<int32_t> block = pool_->take();
    if (!block) return false;
    blocks_.push_back(*block);
  }
  return true;
}

int64_t BlockTable::slot(int64_t position) const {
  return blocks_[static_cast<size_t>(position / block_size_)] * block_size_ +
         position % block_size_;
}

}  // namespace sluice
