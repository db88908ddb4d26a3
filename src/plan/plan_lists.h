// Memory of a plan itself, and of the lists that loads and streams make of it. A checkpoint of many
// experts has fifty thousand tensors.
#pragma once

#include <cstdint>

#include "src/plan/read_plan.h"

namespace sluice {

// Bytes of an element of each list; where it is declared, its size is compared.
inline constexpr uint64_t kFetchBytes = 224;        // Fetch
inline constexpr uint64_t kEncodeStatsBytes = 40;   // EncodeStats
inline constexpr uint64_t kMeasuringBytes = 48;     // EncodeQueue::Measuring
inline constexpr uint64_t kTensorReportBytes = 56;  // TensorReport
inline constexpr uint64_t kResidentBytes = 136;     // Resident::Part
inline constexpr uint64_t kStreamedBytes = 64;      // TileStream: what finds a parameter's tiles
inline constexpr uint64_t kTileStatsBytes = 48;     // TileStream::TensorStats
inline constexpr uint64_t kExpertBytes = 128;       // ExpertCache and its policy: an expert
inline constexpr uint64_t kExpertSlotBytes = 96;    // and a slot
inline constexpr uint64_t kHostSourceBytes = 96;    // HostTiles: a source, and what finds it

struct PlanLists {
  uint64_t plan = 0;    // itself, to the end of the run
  uint64_t kept = 0;    // facts of each tensor and parameter, from the load to the end
  uint64_t load = 0;    // the order of its reads, and their results; while a load goes on
  uint64_t stream = 0;  // from the end of the load on, where weights are streamed
  uint64_t making = 0;  // while a plan is made: what finds tensors by their names
};

// `plan`: of plan_sizes() or compile().
PlanLists plan_lists(const ReadPlan& plan);

}  // namespace sluice
