// Decisions and sizes of streaming: which parameters stay on the device, in host memory and on
// disk, and the buffers of streams.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/plan/place_rules.h"
#include "src/plan/read_plan.h"

namespace sluice {

// Bytes left for parameters that could be streamed.
struct FreeBytes {
  uint64_t device = 0;
  std::optional<uint64_t> host = {};  // none: the device's memory is the host's
};

// Chooses each parameter's tier. As many bytes as fit stay on the device, and as many of the others
// as fit stay in host memory, which is faster than the disk. The rest is spread evenly over the
// sweep, so that link and disk always have work. Parameters that only some tokens use (experts)
// leave before those that all use; where the device's memory is the host's, all of them leave, and
// get a cache of what room there is. A table that is only looked up goes first: a token
// needs one row of it. `all` is laid out with everything resident. A rule that names a tier counts,
// whatever the room; vectors stay in any case.
Placement choose_placement(const ReadPlan& all, const FreeBytes& room,
                           const std::vector<PlaceRule>& rules = {});

// Parameters, as numbers, that only some tokens use, and those that all use.
struct ByUse {
  std::vector<size_t> routed, common;
  void add(const ReadPlan& all, size_t param);
};

// The tiers that rules fix, and what they leave to be chosen; found once for all placements of a
// plan.
struct PlaceChoice {
  Placement fixed = {};  // of those that are neither movable nor tables
  ByUse movable = {};
  std::vector<size_t> tables = {};  // that are only looked up
};
// `has_host`: host memory is a tier of its own.
PlaceChoice place_choice(const ReadPlan& all, const std::vector<PlaceRule>& rules, bool has_host);
Placement choose_placement(const ReadPlan& all, const FreeBytes& room, const PlaceChoice& choice);

// Returns the experts that a cache has slots for, in the room for parameters that those of
// `placement` leave: what stays, but would not stay in `least`. `all` gets the placement.
uint64_t expert_slots(ReadPlan& all, const Placement& placement, const Placement& least,
                      uint64_t room);

// Rows of a streamed table are read one group at a time, kLookupSlots at once.
inline constexpr uint64_t kLookupSlots = 8;
struct LookupShape {
  uint64_t slot_bytes = 0;  // 0: no table is streamed
  uint64_t tile_bytes = 0;  // of an encoded row group
  uint64_t row_bytes = 0;   // of a decoded row
};
LookupShape lookup_shape(const ReadPlan& plan);
uint64_t lookup_bytes(const LookupShape& shape);  // bytes of all buffers together

// Staging slots of a sweep, and buffers for its tiles: more of these, as they keep the disk busy
// while compute is at something that stays in memory. No tile is in two at once.
uint64_t sweep_slots(const ReadPlan& plan);
uint64_t tile_buffers(const ReadPlan& plan);

// Bytes of what a rank sends to all others at once, and of what it receives, in a sweep.
uint64_t sweep_exchange_bytes(const ReadPlan& plan);

// Tiles of the host sweep are copied into one buffer while the device computes with the other.
inline constexpr uint64_t kHostTileBuffers = 2;
// Bytes of a pass of few rows: copied from host memory to the device, and multiplied by the CPU
// where they are. Of experts those that a token uses.
uint64_t host_sweep_bytes(const ReadPlan& plan);
uint64_t host_multiplied_bytes(const ReadPlan& plan);

// Largest product of the CPU beside a device [rows, elements]; nothing: it multiplies none.
struct HostProducts {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
};
// Products of steps of at most `rows` rows.
HostProducts host_products(const ReadPlan& plan, int64_t rows);

// Bytes that streams take from the ledger, of the host and of a device with memory of its own.
struct StreamMemory {
  uint64_t sweep =
      0;  // slots where reads arrive, and tiles where the device's memory is the host's
  uint64_t experts = 0;       // of the cache
  uint64_t lookup = 0;        // rows of a table on disk
  uint64_t host_row = 0;      // a row of a table in host memory
  uint64_t host_vectors = 0;  // copies of biases that the CPU adds beside a device
  uint64_t tiles = 0;         // of the device: encoded there
  uint64_t host_tiles = 0;    // and copied there, and unpacked
  uint64_t host() const { return sweep + experts + lookup + host_row + host_vectors; }
  uint64_t device() const { return tiles + host_tiles; }
};
StreamMemory stream_memory(const ReadPlan& plan, bool device_memory);

// The biases that the CPU beside a device adds, as numbers of parameters.
std::vector<uint32_t> host_vectors(const ReadPlan& plan);

}  // namespace sluice
