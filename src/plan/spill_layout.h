// The contents of a spill file: as they are in memory, every matrix of a plan that is quantized
// online, or of those that there was room for; every matrix that the plan reads from there
// (Origin::spill); and every streamed one of whose rows a rank has a part; and an index with scales
// and checksums, which stays in memory while the file is used. Arithmetic only: of the checkpoint,
// the scheme, the rank and the choice of tensors.
//
//   file   header (kSpillHeaderBytes) | a plane of a tensor (codes, scales and zeros of groups),
//          panel after panel, from a multiple of 4096 on | ... | index
//   index  for each tensor: a record of kSpillRecordBytes, which says where its planes are | its
//          name | its float32 scales | its checksums (XXH3-64 of a panel of a plane); each begins
//          at a multiple of 64
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "src/plan/read_plan.h"

namespace sluice {

inline constexpr uint64_t kSpillHeaderBytes = 16384;
inline constexpr uint64_t kSpillRecordBytes = 192;

struct SpilledTensor {
  using OfPlanes = std::array<uint64_t, io::kMostExtents>;  // in the order of kPlanes

  uint32_t tensor = 0;  // of the plan
  uint32_t planes = 0;  // in the file
  uint64_t panels = 0;
  OfPlanes panel_bytes = {};
  OfPlanes begin = {};        // offsets in the file
  uint64_t panel_scales = 0;  // float32 of one panel, in the index: scales, or an outer one
  uint64_t packing = 0;       // checksum of all that decides what the planes hold, beside the name
  uint32_t name_bytes = 0;
  // Offsets in the index.
  uint64_t record = 0;
  uint64_t name = 0;
  uint64_t scales = 0;
  uint64_t checksums = 0;  // those of a plane's panels behind those of the plane before

  uint64_t bytes() const {
    return panels * std::accumulate(panel_bytes.begin(), panel_bytes.end(), uint64_t{0});
  }
  // Gives it the part of the index from `at` on, and returns the part's end.
  uint64_t place_in_index(uint64_t at);
  // The place of a plane of some rows, which begin a panel and end with one, or are the last.
  io::Extent extent(size_t plane, int64_t first_row, int64_t rows) const {
    const auto first = static_cast<uint64_t>(first_row / kPanelRows);
    const auto count = static_cast<uint64_t>(ceil_div(first_row + rows, kPanelRows)) - first;
    return {0, begin[plane] + first * panel_bytes[plane], count * panel_bytes[plane]};
  }
};

struct SpillLayout {
  std::vector<SpilledTensor> tensors;
  std::vector<int32_t> entry_of;  // of each tensor of the plan; -1: not in the file
  uint64_t codes_end = kSpillHeaderBytes;
  uint64_t index_bytes = 0;  // 0: there is nothing to spill
  // Says of each of `tensors` that there is a place for it, but not its codes. Empty: all are
  // there.
  std::vector<uint8_t> absent = {};

  uint64_t file_bytes() const { return codes_end + index_bytes; }
  // Returns the memory of the layout itself, of a counter for each tensor, and of a bit for each
  // checksum of the index.
  uint64_t list_bytes() const {
    return tensors.size() * (sizeof(SpilledTensor) + sizeof(uint32_t) + 1) +
           entry_of.size() * sizeof(int32_t) + index_bytes / 64;
  }
  // Returns the place of a tensor, there or absent; find(): only one that is there.
  const SpilledTensor* place_of(uint32_t tensor) const {
    bool has = tensor < entry_of.size() && entry_of[tensor] >= 0;
    return has ? &tensors[static_cast<size_t>(entry_of[tensor])] : nullptr;
  }
  const SpilledTensor* find(uint32_t tensor) const {
    const SpilledTensor* s = place_of(tensor);
    const bool is_absent =
        s != nullptr && !absent.empty() && absent[static_cast<size_t>(entry_of[tensor])] != 0;
    return is_absent ? nullptr : s;
  }
};

// Lays out all tensors, or those that fit `most_bytes`: tensors that the plan streams come first.
SpillLayout spill_layout(const ReadPlan& plan, uint64_t most_bytes = UINT64_MAX);
// The layout of a plan that streams all matrices: no placement has a larger one.
SpillLayout largest_spill_layout(const ReadPlan& plan);
// Bytes of the smallest file that has all that the plan reads from nowhere else (Origin::spill).
uint64_t needed_file_bytes(const ReadPlan& plan);
// Names a tensor of a plan in the index: as the checkpoint does, with the part that the plan takes.
std::string spill_name(const ReadPlan& plan, uint32_t tensor);

// Bytes that a sweep for so many tokens reads, of each unit and of all: from the spill cache the
// tensors in `spilled` (none in the first sweep), the others from the checkpoint. Tensors of
// experts count with the share that routers choose: all experts are taken for equally likely, and
// so to be in the cache.
std::vector<uint64_t> sweep_bytes_of_units(const ReadPlan& plan, const SpillLayout& spilled,
                                           int64_t tokens = 1);
uint64_t sweep_bytes(const ReadPlan& plan, const SpillLayout& spilled, int64_t tokens = 1);

}  // namespace sluice
