// A fetch is one read, of one slot, and the destination of its bytes. A load, a sweep and a row
// look-up are orders of fetches, made from the plan and the index of the spill cache. The order
// fixes the source of each fetch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/device/device.h"
#include "src/plan/plan_lists.h"
#include "src/plan/read_plan.h"
#include "src/plan/spill_layout.h"

namespace sluice {

struct Fetch {
  enum class Form : uint8_t {
    stored,  // elements of the checkpoint, to be encoded
    packed,  // codes of the spill cache, to be checked and copied
  };
  Form form = Form::stored;
  uint32_t file = 0;    // index into the checkpoint's files; unused by Form::packed
  uint64_t offset = 0;  // in the file [bytes]
  uint64_t length = 0;
  uint32_t unit = 0;
  // The rows that arrive: moves of the plan, or just `move`.
  uint32_t first_move = 0;
  uint32_t moves = 0;  // 0: `move`
  Move move;
  bool measure = false;  // first look for the tensor's largest value
  bool encode = true;
  // The rows of `move` come with those of the weight's other planes, which are further extents of
  // the read; the plan has them.
  bool with_planes = false;

  // Destination of the rows: a tile that begins with the first of them; without one, the storage of
  // their parameter.
  Weight tile;
  DeviceEvent* after = nullptr;  // the tile's memory is in use until then; null: it is free
  uint64_t tag = 0;              // chosen by the caller

  bool has_tile() const { return tile.data != nullptr; }
};

static_assert(sizeof(Fetch) <= kFetchBytes);

std::span<const Move> moves_of(const ReadPlan& plan, const Fetch& fetch);

// Every span of the plan, in order, from the spill cache where its index `packed` has it.
std::vector<Fetch> load_order(const ReadPlan& plan, const SpillLayout* packed);

// Tiles of the sweep from `first` on: as many of a tensor as `most_bytes` hold where the spill
// cache has them, one where they are encoded.
struct TileFetch {
  Fetch fetch;
  uint32_t tiles = 1;
};
TileFetch tile_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t first,
                     uint64_t most_bytes);

// The row group of a table that has row `id`.
Fetch row_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t tensor, int64_t id);

// Bytes that are read for other planes than the codes.
uint64_t other_bytes(const ReadPlan& plan, const Fetch& fetch);

// Bytes of a slot that a direct read of this extent needs.
uint64_t slot_bytes_of(uint64_t offset, uint64_t length);

}  // namespace sluice
