// Which blocks of the KV cache are free. Bookkeeping only: no memory, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sluice {

class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  std::optional<int32_t> take();  // nullopt: none is free
  void give_back(int32_t block);

 private:
  std::vector<int32_t> free_;  // taken from the back; the lowest numbers first
  std::vector<bool> taken_;
};

// The blocks of one sequence: token position / block_size → block. Gives them back when it ends;
// the pool outlives it.
class BlockTable {
 public:
  BlockTable(BlockPool& pool, int64_t block_size) : pool_(&pool), block_size_(block_size) {}
  BlockTable(BlockTable&& other) noexcept
      : pool_(other.pool_),
        block_size_(other.block_size_),
        blocks_(std::exchange(other.blocks_, {})) {}
  BlockTable& operator=(BlockTable&&) = delete;
  ~BlockTable();

  // Blocks for `tokens` positions; false (and nothing taken beyond what fit) when the pool runs
  // out.
  bool reserve(int64_t tokens);
  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t slot(int64_t position) const;  // block * block_size + offset

 private:
  BlockPool* pool_;
  int64_t block_size_;
  std::vector<int32_t> blocks_;
};

}  // namespace sluice
