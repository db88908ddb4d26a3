// Bookkeeping of the blocks of one kind of memory that are in use, and by how many users: no
// memory, no I/O.
//
// Unused blocks may keep their contents until they are taken, the least recently used first.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/error.h"

namespace sluice {

class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t free_blocks() const { return free_; }  // unused blocks, whatever they hold
  int64_t kept_blocks() const { return free_ - std::ssize(empty_); }  // unused, and keep something

  // Takes a block, with one use; nullopt: none is free. Its contents are lost.
  std::optional<int32_t> take();
  void share(int32_t block);      // one use more, of a block that is in use or keeps something
  void give_back(int32_t block);  // one use less
  // Marks the contents of a block in use as worth keeping once it is unused.
  void keep(int32_t block);
  void forget(int32_t block);  // its contents are not worth keeping any more
  int32_t uses(int32_t block) const { return blocks_[index(block)].uses; }

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t uses = 0;
    bool kept = false;
    int32_t older = kNone;  // of the free blocks that keep something, by when they became free
    int32_t newer = kNone;
  };

  size_t index(int32_t block) const {
    check(block >= 0 && block < size(), "a KV block that is none");
    return static_cast<size_t>(block);
  }
  Block& at(int32_t block) { return blocks_[index(block)]; }
  void unlink(int32_t block);
  void link_newest(int32_t block);

  std::vector<Block> blocks_;
  int64_t free_ = 0;
  std::vector<int32_t> empty_;  // free, and keep nothing; taken from the back
  int32_t oldest_ = kNone;      // free, and keeps something
  int32_t newest_ = kNone;
};

}  // namespace sluice
