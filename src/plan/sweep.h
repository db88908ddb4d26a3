// What streaming takes: which parameters stay in memory, and the buffers that the others pass
// through.
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/place_rules.h"
#include "src/plan/read_plan.h"

namespace sluice {

// Which parameters do not stay, when `room` bytes are left for those that could go: as many bytes
// as fit stay, spread evenly over the sweep, so that the disk always has work. A table that is only
// looked up goes first: a token needs one row of it. `all` is laid out with everything resident.
// Where a rule says host or disk, that counts, whatever the room; vectors stay in any case.
std::vector<bool> choose_streamed(const ReadPlan& all, uint64_t room,
                                  const std::vector<PlaceRule>& rules = {});

// Rows of a streamed table are read one group at a time, kLookupSlots at once.
inline constexpr uint64_t kLookupSlots = 8;
struct LookupShape {
  uint64_t slot_bytes = 0;  // 0: no table is streamed
  uint64_t tile_bytes = 0;  // of an encoded row group
  uint64_t row_bytes = 0;   // of a decoded row
};
LookupShape lookup_shape(const ReadPlan& plan);

// Staging slots of a sweep, and buffers for its tiles: more of these, as they keep the disk busy
// while compute is at something that stays in memory. No tile is in two at once.
uint64_t sweep_slots(const ReadPlan& plan);
uint64_t tile_buffers(const ReadPlan& plan);

// Bytes that a stream takes from the ledger, of the host and of a device with memory of its own.
struct StreamMemory {
  uint64_t sweep =
      0;  // slots where reads arrive, and tiles where the device's memory is the host's
  uint64_t lookup = 0;  // rows of a table
  uint64_t tiles = 0;   // of the device
  uint64_t host() const { return sweep + lookup; }
};
StreamMemory stream_memory(const ReadPlan& plan, bool device_memory);

}  // namespace sluice
