// The parameters that stay in host memory beside a device with memory of its own: each pass copies
// them there, tile by tile, through two buffers.
//
// Weights that the CPU beside the device multiplies are stored once, as the CPU's kernels need
// them. In steps of many rows they cross the link, and the device unpacks each tile.
//
// All copies are work of streams: a tile is copied while the device computes with the one before.
// Events order the two: compute waits for a tile, and a copy for its buffer. So host and device
// never wait for each other, and copies run at the rate of the link.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "src/memory/buffer.h"
#include "src/nn/weight_stream.h"
#include "src/plan/sweep.h"

namespace sluice {

class HostTiles final : public WeightStream {
 public:
  // During its lifetime the plan's parameters in host memory come from this stream. They are loaded
  // already. All arguments, and the memory of the parameters, outlive it.
  HostTiles(const ReadPlan& plan, const Backend& backend, Ledger& ledger);
  ~HostTiles() override;
  HostTiles(const HostTiles&) = delete;
  HostTiles& operator=(const HostTiles&) = delete;

  WeightTile tile(const Param& param, int64_t row, DeviceStream& stream) override;
  void expect(const Param& param, bool is_wanted) override;
  int64_t host_rows(const Param& param) const override;
  const float* host_vector(const float* on_device) const override;
  void embed(const Param& table, std::span<const int32_t> ids, Tensor out,
             DeviceStream& stream) override;

  uint64_t bytes_copied() const { return bytes_copied_; }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    std::unique_ptr<DeviceEvent> arrived;
    std::unique_ptr<DeviceEvent> used;  // the device is done with it
    std::optional<uint32_t> tile;       // the tile that is there or in flight
  };

  struct Source {
    const TiledParam* tiled = nullptr;
    int64_t host_rows = 0;
    bool is_wanted = true;  // by the rest of the step, as far as it is known
  };
  struct Vector {
    const float* on_device = nullptr;
    int64_t size = 0;
    const float* copy = nullptr;
  };

  void copy_vectors();
  WeightTile view(uint32_t tile, std::byte* memory) const;
  std::optional<uint32_t> next_tile(uint32_t tile) const;
  void fetch(Slot& slot, uint32_t tile);

  const ReadPlan& plan_;
  const Backend& backend_;
  std::unordered_map<const Param*, Source> sources_;
  Buffer vector_memory_;
  std::vector<Vector> vectors_;  // by their places on the device
  Buffer memory_;
  std::byte* unpacked_ = nullptr;  // a tile; used by compute alone, whose work is in order
  Buffer row_;                     // a decoded row of a table
  std::array<Slot, kHostTileBuffers> slots_;
  size_t current_ = 0;  // the slot that compute uses
  std::unique_ptr<DeviceStream> copies_;
  uint64_t bytes_copied_ = 0;
};

}  // namespace sluice
