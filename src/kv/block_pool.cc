#include "src/kv/block_pool.h"

namespace sluice {

BlockPool::BlockPool(int64_t blocks) : blocks_(static_cast<size_t>(blocks)), free_(blocks) {
  for (int64_t b = blocks - 1; b >= 0; --b) empty_.push_back(static_cast<int32_t>(b));
}

std::optional<int32_t> BlockPool::take() {
  int32_t block = oldest_;
  if (!empty_.empty()) {
    block = empty_.back();
    empty_.pop_back();
  } else if (block != kNone) {
    unlink(block);
  } else {
    return std::nullopt;
  }
  at(block).uses = 1;
  at(block).kept = false;
  --free_;
  return block;
}

void BlockPool::share(int32_t block) {
  Block& b = at(block);
  check(b.uses > 0 || b.kept, "a KV block without contents was shared");
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
  if (b.kept) {
    link_newest(block);
  } else {
    empty_.push_back(block);
  }
}

void BlockPool::keep(int32_t block) {
  check(at(block).uses > 0, "a free KV block was filled");
  at(block).kept = true;
}

void BlockPool::forget(int32_t block) {
  Block& b = at(block);
  if (b.kept && b.uses == 0) {
    unlink(block);
    empty_.push_back(block);
  }
  b.kept = false;
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
