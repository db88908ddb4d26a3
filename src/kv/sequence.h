// One sequence: its computed tokens and its blocks. Bookkeeping only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/block_table.h"

namespace sluice {

class Sequence {
 public:
  explicit Sequence(BlockManager& blocks, uint64_t root = 0) : table_(blocks, root) {}
  int64_t length() const { return length_; }  // tokens whose keys and values are stored
  // Forgets the tokens after the first `length`; where states, or what a window needs, were not
  // kept there, more of them, which are to be computed again (BlockTable::rewind).
  void truncate(int64_t length) { length_ = table_.rewind(length_, std::min(length, length_)); }
  // `tokens` more are stored.
  void grow(int64_t tokens) { length_ += tokens; }
  // The known prefix of `ids`; and begins the sequence with it.
  PrefixMatch match(std::span<const int32_t> ids) const { return table_.match(ids); }
  void adopt(const PrefixMatch& match, std::vector<BlockCopy>& copies) {
    length_ = table_.adopt(match, copies);
  }
  // Gives the blocks back for a while; what they hold is kept for adopt(), if there is room.
  void suspend() {
    table_.suspend();
    length_ = 0;
  }
  // Forgets everything, and gives the blocks back.
  void release() {
    table_.release();
    length_ = 0;
  }
  // The same, and shares blocks with sequences of another root from now on.
  void begin_again(uint64_t root) {
    table_.begin_again(root);
    length_ = 0;
  }
  Sequence fork() const {
    Sequence copy(table_.fork());
    copy.length_ = length_;
    return copy;
  }
  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }

 private:
  explicit Sequence(BlockTable table) : table_(std::move(table)) {}

  BlockTable table_;
  int64_t length_ = 0;
};

}  // namespace sluice
