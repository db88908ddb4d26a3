// A step as data: all that a rank needs to compute it with its part of the weights and of the KV
// cache. Rank 0 makes it of sequences and their blocks, and tells it to the others, which have
// neither.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/message.h"
#include "src/kv/block_manager.h"

namespace sluice {

// The first byte of what rank 0 tells.
enum class RankCommand : uint8_t {
  end,     // of the run
  place,   // the shape of the run follows
  load,    // weights, as placed
  shares,  // of the run's reads and weights, which each rank tells
  step,    // a StepData follows
  copies,  // of KV blocks
  logits,  // of rows of the last step
  row,     // of the last step's result, which rank 0 wants
};

struct StepData {
  // Consecutive tokens of a sequence, the first of them at `position` in it. `rope_length` as
  // StepPart has it.
  struct Part {
    int64_t first_row = 0;
    int64_t rows = 0;
    int64_t position = 0;
    int64_t rope_length = 0;
  };
  // Places of the rows in the KV cache, in a group of layers.
  struct GroupRows {
    std::vector<SequenceChunk> chunks;  // their tables are a sequence's, or in `tables`
    std::vector<int64_t> slots;
  };

  std::vector<int32_t> ids;
  std::vector<Part> parts;
  std::vector<GroupRows> groups;
  std::vector<BlockCopy> copies;  // to be executed before
  std::vector<int32_t> tables;    // block tables of a step that was read

  void clear();  // but not the number of groups
  void write(MessageWriter& message) const;
  void read(MessageReader& message);
};

}  // namespace sluice
