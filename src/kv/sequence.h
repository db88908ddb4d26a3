// One sequence: what has been computed of it, and its blocks. Bookkeeping only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/block_table.h"

namespace sluice {

class Sequence {
 public:
  Sequence(BlockPool& pool, int64_t block_size, PrefixId root = 0)
      : table_(pool, block_size, root) {}
  int64_t length() const { return length_; }  // tokens whose keys and values are stored
  // Forgets the tokens after the first `length`.
  void truncate(int64_t length) { length_ = std::min(length, length_); }
  // `tokens` more are stored.
  void grow(int64_t tokens) { length_ += tokens; }
  // Begins with what is known of `ids`, of which one at least is left to be computed.
  void adopt_prefix(std::span<const int32_t> ids) {
    length_ = table_.adopt_prefix(ids.first(ids.size() - 1));
  }
  // Forgets everything, and gives the blocks back.
  void release() {
    table_.release();
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
