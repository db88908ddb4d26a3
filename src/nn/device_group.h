// Ranks that have a device with memory of its own each, and exchange tensors from one memory to
// another.
#pragma once

#include "src/base/units.h"
#include "src/nn/group.h"

namespace sluice {

// A way between the devices of all ranks of a group.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  // Puts the bytes of all ranks one after another, in the order of ranks, into `all`, as work of
  // `stream`: as many of each. Both are in the device's memory; `own` may be its place in `all`.
  virtual void all_gather(const std::byte* own, std::byte* all, uint64_t bytes,
                          DeviceStream& stream) const = 0;
};

// A group whose tensors are in the memory of devices; what lies in the host's memory goes by the
// ranks' group, `host`.
class DeviceGroup final : public Group {
 public:
  // Memory of the device for so many ranks.
  static constexpr uint64_t kPart = 4 * MiB;
  static uint64_t bytes(int ranks) { return kPart * static_cast<uint64_t>(ranks); }
  // All outlive it. `memory`: of the device, as much as bytes() says.
  DeviceGroup(const Group& host, const DeviceLink& link, std::span<std::byte> memory)
      : host_(host), link_(link), memory_(memory) {}

  Rank rank() const override { return host_.rank(); }
  std::span<const std::byte> all_gather(std::span<const std::byte> own) const override {
    return host_.all_gather(own);
  }
  void all_to_all(std::span<const std::span<const std::byte>> to,
                  std::span<const std::span<std::byte>> from) const override {
    host_.all_to_all(to, from);
  }
  void send(int to, std::span<const std::byte> bytes) const override { host_.send(to, bytes); }
  void receive(int from, std::span<std::byte> bytes) const override { host_.receive(from, bytes); }
  void tell(std::span<const std::byte> message) const override { host_.tell(message); }
  void hear(std::vector<std::byte>& message, const std::stop_token& stop) const override {
    host_.hear(message, stop);
  }
  // With a CPU's kernels, tensors are in the host's memory.
  void sum(Tensor y, const Kernels& kernels) const override;
  void gather_columns(Tensor part, Tensor whole, std::span<const Share> shares,
                      const Kernels& kernels) const override;

 private:
  template <class Take>
  void each_part(Tensor y, const Kernels& kernels, const Take& take) const;

  const Group& host_;
  const DeviceLink& link_;
  std::span<std::byte> memory_;
};

}  // namespace sluice
