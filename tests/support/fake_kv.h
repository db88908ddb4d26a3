// Stand-in for the contents of KV blocks. Each slot has a number that stands for a group of layers,
// a token and all tokens before it. A state has one that stands for all tokens so far, and is made
// of the one before. A sequence whose blocks are wrong anywhere reads another number there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/sequence.h"

namespace sluice::test {

class FakeKv {
 public:
  explicit FakeKv(const BlockOptions& options, bool host_is_far = false)
      : host_is_far_(host_is_far) {
    for (const KvGroup& g : options.groups) size_ = std::max(size_, g.block_size);
    for (size_t t = 0; t < kTiers; ++t)
      slots_[t].resize(static_cast<size_t>(options.blocks[t] * size_));
  }

  // Copies blocks. With `beside`, blocks from disk arrive only when the next ones are copied; so do
  // blocks from far host memory, unless others are copied elsewhere.
  void copy(std::span<const BlockCopy> copies, bool beside = false) {
    finish_copies();
    for (const BlockCopy& c : copies) {
      if (is_late(c.from)) finish_copies();
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
      uint64_t state = salt, before = salt;
      for (int64_t p = 0; p <= position; ++p) {
        before = state;
        state = next(state, ids[static_cast<size_t>(p)]);
      }
      for (size_t g = 0; g < blocks.groups(); ++g) {
        if (blocks.is_state(g) && position > 0) {
          ASSERT_EQ(device(blocks, sequence, g, position), before + g)
              << "the state of group " << g;
        }
        device(blocks, sequence, g, position) = state + g;
      }
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
        if (blocks.is_state(g)
                ? p + 1 < sequence.length()
                : p < blocks.first_block(g, sequence.length()) * blocks.block_size(g))
          continue;
        ASSERT_EQ(device(blocks, sequence, g, p), state + g) << "group " << g << ", position " << p;
      }
    }
  }

 private:
  struct Late {
    BlockCopy copy;
    std::vector<uint64_t> contents;
  };
  bool is_late(BlockPlace place) const {
    return std::ranges::any_of(late_, [&](const Late& l) { return l.copy.to == place; });
  }
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
  uint64_t& device(const BlockManager& blocks, const Sequence& sequence, size_t group,
                   int64_t position) {
    const bool state = blocks.is_state(group);
    const int64_t size = blocks.block_size(group), b = state ? 0 : position / size;
    return at({Tier::device, sequence.table().blocks(group).at(static_cast<size_t>(b))},
              state ? 0 : position % size);
  }

  int64_t size_ = 0;  // slots of a block: of the largest
  bool host_is_far_;
  std::array<std::vector<uint64_t>, kTiers> slots_;
  std::vector<Late> late_;
};

}  // namespace sluice::test
