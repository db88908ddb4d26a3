// What blocks of a KV cache would hold: for each slot a number that stands for a token and all
// tokens before it. A sequence whose blocks are wrong anywhere reads another number there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/sequence.h"

namespace sluice::test {

class FakeKv {
 public:
  FakeKv(int64_t blocks, int64_t block_size)
      : block_size_(block_size), slots_(static_cast<size_t>(blocks * block_size)) {}

  void copy(std::span<const BlockCopy> copies) {
    for (const BlockCopy& c : copies) {
      for (int64_t i = 0; i < block_size_; ++i)
        at(c.to * block_size_ + i) = at(c.from * block_size_ + i);
    }
  }

  // The next `rows` tokens of a sequence, of which `ids` are all.
  void store(Sequence& sequence, std::span<const int32_t> ids, int64_t rows, uint64_t salt = 0) {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t position = sequence.length();
      at(sequence.table().slot(position)) = state(ids, position, salt);
      sequence.grow(1);
    }
  }

  void expect(const Sequence& sequence, std::span<const int32_t> ids, uint64_t salt = 0) {
    uint64_t state = salt;
    for (int64_t p = 0; p < sequence.length(); ++p) {
      state = next(state, ids[static_cast<size_t>(p)]);
      ASSERT_EQ(at(sequence.table().slot(p)), state) << "position " << p;
    }
  }

 private:
  static uint64_t next(uint64_t state, int32_t id) {
    return (state + static_cast<uint64_t>(id) + 1) * 0x9E3779B97F4A7C15u ^ (state >> 29);
  }
  static uint64_t state(std::span<const int32_t> ids, int64_t position, uint64_t salt) {
    uint64_t state = salt;
    for (int64_t p = 0; p <= position; ++p) state = next(state, ids[static_cast<size_t>(p)]);
    return state;
  }
  uint64_t& at(int64_t slot) { return slots_[static_cast<size_t>(slot)]; }

  int64_t block_size_;
  std::vector<uint64_t> slots_;
};

}  // namespace sluice::test
