#include "src/engine/step_data.h"

namespace sluice {
namespace {

// A SequenceChunk without its table.
struct ChunkRows {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
};

}  // namespace

void StepData::clear() {
  ids.clear();
  parts.clear();
  copies.clear();
  tables.clear();
  for (GroupRows& group : groups) {
    group.chunks.clear();
    group.slots.clear();
  }
}

void StepData::write(MessageWriter& message) const {
  message.list<int32_t>(ids);
  message.list<Part>(parts);
  message.list<BlockCopy>(copies);
  for (const GroupRows& group : groups) {
    message.list<int64_t>(group.slots);
    message.put(static_cast<uint64_t>(group.chunks.size()));
    for (const SequenceChunk& c : group.chunks) {
      message.put(ChunkRows{c.first_row, c.rows, c.first_position});
      message.list<int32_t>(c.block_table);
    }
  }
}

void StepData::read(MessageReader& message) {
  clear();
  message.list(ids);
  message.list(parts);
  message.list(copies);
  std::vector<uint64_t> lengths;
  for (GroupRows& group : groups) {
    message.list(group.slots);
    for (auto left = message.get<uint64_t>(); left > 0; --left) {
      const auto rows = message.get<ChunkRows>();
      group.chunks.push_back({rows.first_row, rows.rows, rows.first_position, {}});
      lengths.push_back(message.list(tables));
    }
  }
  // The tables do not move any more.
  std::span<const int32_t> rest = tables;
  size_t next = 0;
  for (GroupRows& group : groups) {
    for (SequenceChunk& chunk : group.chunks) {
      const uint64_t length = lengths[next++];
      chunk.block_table = rest.first(length);
      rest = rest.subspan(length);
    }
  }
}

}  // namespace sluice
