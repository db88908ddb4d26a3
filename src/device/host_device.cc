#include "src/device/host_device.h"

#include <cstring>

#include "src/base/check.h"
#include "src/memory/system.h"

namespace sluice {
namespace {

class HostEvent final : public DeviceEvent {
 public:
  void synchronize() override {}
};

class HostStream final : public DeviceStream {
 public:
  void copy(std::byte* to, const std::byte* from, uint64_t bytes) override {
    if (to != from) std::memcpy(to, from, bytes);
  }
  void clear(std::byte* at, uint64_t bytes) override { std::memset(at, 0, bytes); }
  void record(DeviceEvent&) override {}
  void wait(const DeviceEvent&) override {}
  void synchronize() override {}
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>&) override { return nullptr; }
  void launch(DeviceGraph&) override { check(false, "the CPU has no graphs"); }
  CUstream_st* handle() const override { return nullptr; }
};

class HostDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  Place place() const override { return Place::host; }
  uint64_t free_bytes() const override { return mem_available(); }
  void reserve(uint64_t) override {}  // the ledger's budget is all that there is
  Buffer memory(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes,
                Buffer::Touch touch) override {
    return Buffer(ledger, use, owner, bytes, touch);
  }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<DeviceEvent> event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Pinned> pin(std::span<std::byte>) override { return nullptr; }

 private:
  DeviceInfo info_{"cpu"};
};

}  // namespace

DeviceStream& host_stream() {
  static HostStream stream;
  return stream;
}

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace sluice
