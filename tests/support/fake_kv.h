// What blocks of a KV cache would hold: for each slot a number that stands for a group of layers, a
// token and all tokens before it. A sequence whose blocks are wrong anywhere reads another number
// there.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/sequence.h"

namespace sluice::test {

class FakeKv {
 public:
  explicit FakeKv(const BlockOptions& options, bool host_is_far = false)
      : size_(options.block_size), host_is_far_(host_is_far) {
    for (size_t t = 0; t < kTiers; ++t)
      slots_[t].resize(static_cast<size_t>(options.blocks[t] * size_));
  }

  // With `beside`, what comes from disk is there only when the next ones are copied; and what comes
  // from host memory that is far, unless others are copied elsewhere.
  void copy(std::span<const BlockCopy> copies, bool beside = false) {
    finish_copies();
    for (const BlockCopy& c : copies) {
      bool from_host = c.from.tier == Tier::host && c.to.tier == Tier::device;
      if (!from_host) finish_copies(Tier::host);
      if (beside && (c.from.tier == Tier::disk || (from_host && host_is_far_))) {
        late_.push_back({c, {}});
        for (int64_t i = 0; i < size_; ++i) {
          late_.back().contents.push_back(at(c.from, i));
          at(c.to, i) = 0;  // nobody may look at it yet
        }
        continue;
      }
      for (int64_t i = 0; i < size_; ++i) at(c.to, i) = at(c.from, i);
    }
  }
  bool late() const { return !late_.empty(); }

  // The next `rows` tokens of a sequence, of which `ids` are all.
  void store(const BlockManager& blocks, Sequence& sequence, std::span<const int32_t> ids,
             int64_t rows, uint64_t salt = 0) {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t position = sequence.length();
      uint64_t state = salt;
      for (int64_t p = 0; p <= position; ++p) state = next(state, ids[static_cast<size_t>(p)]);
      for (size_t g = 0; g < blocks.groups(); ++g) device(sequence, g, position) = state + g;
      sequence.grow(1);
    }
  }

  // All that the next token would look at.
  void expect(const BlockManager& blocks, const Sequence& sequence, std::span<const int32_t> ids,
              uint64_t salt = 0) {
    uint64_t state = salt;
    for (int64_t p = 0; p < sequence.length(); ++p) {
      state = next(state, ids[static_cast<size_t>(p)]);
      for (size_t g = 0; g < blocks.groups(); ++g) {
        if (p < blocks.first_block(g, sequence.length()) * size_) continue;
        ASSERT_EQ(device(sequence, g, p), state + g) << "group " << g << ", position " << p;
      }
    }
  }

 private:
  struct Late {
    BlockCopy copy;
    std::vector<uint64_t> contents;
  };
  void finish_copies() {
    finish_copies(Tier::host);
    finish_copies(Tier::disk);
  }
  void finish_copies(Tier from) {
    std::erase_if(late_, [&](const Late& l) {
      if (l.copy.from.tier != from) return false;
      for (int64_t i = 0; i < size_; ++i) at(l.copy.to, i) = l.contents[static_cast<size_t>(i)];
      return true;
    });
  }
  static uint64_t next(uint64_t state, int32_t id) {
    return (state + static_cast<uint64_t>(id) + 1) * 0x9E3779B97F4A7C15u ^ (state >> 29);
  }
  uint64_t& at(BlockPlace place, int64_t offset) {
    return slots_[static_cast<size_t>(place.tier)]
                 [static_cast<size_t>(place.block * size_ + offset)];
  }
  uint64_t& device(const Sequence& sequence, size_t group, int64_t position) {
    return slots_[0][static_cast<size_t>(sequence.table().slot(group, position))];
  }

  int64_t size_;
  bool host_is_far_;
  std::array<std::vector<uint64_t>, kTiers> slots_;
  std::vector<Late> late_;
};

}  // namespace sluice::test
