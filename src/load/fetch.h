// Fetches: a read each, and what becomes of its bytes. A load, a sweep and looked-up rows are
// orders of fetches, made from the plan and from the index of the spill cache. The order says where
// each fetch comes from; nothing changes that afterwards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/read_shape.h"
#include "src/device/device.h"
#include "src/plan/read_plan.h"
#include "src/plan/spill_layout.h"

namespace sluice {

struct Fetch {
  enum class Form : uint8_t {
    stored,  // elements of the checkpoint, which are encoded
    packed,  // codes of the spill cache, which are compared with their checksums and copied
  };
  Form form = Form::stored;
  uint32_t file = 0;    // of the checkpoint; Form::packed has none
  uint64_t offset = 0;  // in the file [bytes]
  uint64_t length = 0;
  uint32_t unit = 0;
  // The rows that arrive: moves of the plan, or just `move`.
  uint32_t first_move = 0;
  uint32_t moves = 0;  // 0: `move`
  Move move;
  bool measure = false;  // first look for the tensor's largest value
  bool encode = true;

  // Where the rows go: to a tile that begins with the first of them, or, without one, where their
  // parameter lies.
  Weight tile;
  DeviceEvent* after = nullptr;  // the tile's memory is in use until then; null: it is not
  uint64_t tag = 0;              // the caller's

  bool has_tile() const { return tile.data != nullptr; }
};

std::span<const Move> moves_of(const ReadPlan& plan, const Fetch& fetch);

// Every span of the plan, in its order. `packed`, the spill cache's index or null, has precedence.
std::vector<Fetch> load_order(const ReadPlan& plan, const SpillLayout* packed);

// Tiles of the sweep from `first` on: as many of a tensor as `most_bytes` hold where the spill
// cache has them, one where they are encoded.
struct TileFetch {
  Fetch fetch;
  uint32_t tiles = 1;
};
TileFetch tile_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t first,
                     uint64_t most_bytes);

// The rows of a table that row `id` is encoded with.
Fetch row_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t tensor, int64_t id);

// Requests of a slot each that are as much as a disk is fastest with.
size_t reads_in_flight(const io::ReadShape& shape, uint64_t slot_bytes);

// What a direct read of these bytes takes of a slot.
uint64_t slot_bytes_of(uint64_t offset, uint64_t length);

}  // namespace sluice
