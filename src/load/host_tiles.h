// The parameters that stay in host memory beside a device with memory of its own: each pass copies
// them there, tile by tile, through two buffers.
//
// All of it is work of streams: a tile is copied while the device computes with the one before,
// which lets go of its buffer by an event, and compute waits for a tile by another. So neither the
// host nor the device ever waits for the other, and copies are as fast as the link.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "src/device/device.h"
#include "src/memory/buffer.h"
#include "src/nn/weight_stream.h"
#include "src/plan/sweep.h"

namespace sluice {

class HostTiles final : public WeightStream {
 public:
  // From here to its end the parameters of the plan that are in host memory come from this stream.
  // They are loaded. All arguments outlive it, and so does what the parameters' values lie in.
  HostTiles(const ReadPlan& plan, Device& device, Ledger& ledger);
  ~HostTiles() override;
  HostTiles(const HostTiles&) = delete;
  HostTiles& operator=(const HostTiles&) = delete;

  WeightTile tile(const Param& param, int64_t row, DeviceStream& stream) override;
  void embed(const Param& table, std::span<const int32_t> ids, Tensor out,
             DeviceStream& stream) override;

  uint64_t bytes_copied() const { return bytes_copied_; }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    std::unique_ptr<DeviceEvent> arrived;
    std::unique_ptr<DeviceEvent> used;  // the device is done with it
    std::optional<uint32_t> tile;       // that is there, or on its way
  };

  WeightTile view(uint32_t tile, std::byte* memory) const;
  void fetch(Slot& slot, uint32_t tile);

  const ReadPlan& plan_;
  std::unordered_map<const Param*, const TiledParam*> tiled_;
  Buffer memory_;
  Buffer row_;  // of a table, decoded
  std::array<Slot, kHostTileBuffers> slots_;
  size_t current_ = 0;  // that compute has
  std::unique_ptr<DeviceStream> copies_;
  uint64_t bytes_copied_ = 0;
};

}  // namespace sluice
