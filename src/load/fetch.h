// A fetch is one read, of one slot, and the destination of its bytes. A load, a sweep and a row
// look-up are orders of fetches, made from the plan and the index of the spill cache. The order
// fixes the source of each fetch.
#pragma once

#include <array>
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
  // Form::packed: the codes are copied to their destination, not used in their slot.
  bool copied = true;
  // The rows of `move` come with those of the weight's other planes, which are further extents of
  // the read: other_extents().
  bool with_planes = false;
  // This rank reads its band of the rows of all moves, one a rank, or of `move`, and gets its parts
  // of all rows in an exchange (src/load/exchange.h).
  bool exchanged = false;

  // Destination of the rows: a tile that begins with the first of them; without one, the storage of
  // their parameter.
  Weight tile;
  DeviceEvent* after = nullptr;  // the tile's memory is in use until then; null: it is free
  uint64_t tag = 0;              // chosen by the caller

  bool has_tile() const { return tile.data != nullptr; }
};

static_assert(sizeof(Fetch) <= kFetchBytes);

std::span<const Move> moves_of(const ReadPlan& plan, const Fetch& fetch);
// The rows of an exchanged tile that a rank reads.
Move band_of(const ReadPlan& plan, const Move& tile, int rank);

// Every span of the plan, in order, from the spill cache where its index `packed` has it. With
// `exchanges`, ranks read bands of rows for one another; without, each reads all that it needs.
std::vector<Fetch> load_order(const ReadPlan& plan, const SpillLayout* packed, bool exchanges);

// Tiles of the sweep from `first` on: as many of a tensor as `most_bytes` hold where they are used
// as the spill cache has them, one where they are encoded or copied (`most_bytes` is 0). With
// `exchanges`, ranks read bands of exchanged ones.
struct TileFetch {
  Fetch fetch;
  uint32_t tiles = 1;
};
TileFetch tile_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t first,
                     uint64_t most_bytes, bool exchanges = false);

// The row group of a table that has row `id`.
Fetch row_fetch(const ReadPlan& plan, const SpillLayout* packed, uint32_t tensor, int64_t id);

// Extents of a read for other planes than the codes; of packed ones `file` says nothing.
struct OtherExtents {
  std::array<io::Extent, io::kMostExtents - 1> extents = {};
  uint32_t count = 0;
  std::span<const io::Extent> all() const& { return std::span(extents).first(count); }
  std::span<const io::Extent> all() && = delete;  // they would be gone
  uint64_t bytes() const;
};
OtherExtents other_extents(const ReadPlan& plan, const SpillLayout* packed, const Fetch& fetch);

// Bytes of a slot that direct reads of all of a fetch's extents need.
uint64_t slot_bytes_of(const ReadPlan& plan, const SpillLayout* packed, const Fetch& fetch);

}  // namespace sluice
