// Lanes of the encoder come back, whatever the device does.
#include "kernels/cuda/encoder.h"

#include <gtest/gtest.h>

#include <array>

#include "src/base/error.h"

namespace sluice {
namespace {

// Refuses every copy, as a GPU does after a fault.
class BrokenStream final : public DeviceStream {
 public:
  void copy(std::byte*, const std::byte*, uint64_t) override {
    fail(ErrorKind::runtime, "the device is broken");
  }
  void clear(std::byte*, uint64_t) override {}
  void record(DeviceEvent&) override {}
  void wait(const DeviceEvent&) override {}
  void synchronize() override {}
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>&) override { return nullptr; }
  void launch(DeviceGraph&) override {}
  CUstream_st* handle() const override { return nullptr; }
};

class BrokenDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  Place place() const override { return Place::device; }
  uint64_t free_bytes() const override { return 0; }
  void reserve(uint64_t) override {}
  Buffer memory(Ledger&, Use, std::string_view, uint64_t, Buffer::Touch) override { return {}; }
  std::unique_ptr<DeviceStream> stream() override { return std::make_unique<BrokenStream>(); }
  std::unique_ptr<DeviceEvent> event() override { return nullptr; }
  std::unique_ptr<Pinned> pin(std::span<std::byte>) override { return nullptr; }

 private:
  DeviceInfo info_{"broken"};
};

// More callers than there are lanes are told, where one that got no lane would wait for ever.
TEST(CudaEncoder, EveryCallerIsToldOfABrokenDevice) {
  constexpr uint64_t kSlot = 256;
  constexpr int kCallers = 8;
  alignas(256) static std::array<std::byte, 8192> memory;
  const WorkspaceBytes bytes = cuda::CudaEncoder::bytes(kSlot);
  ASSERT_LE(bytes.device + bytes.host, memory.size());
  BrokenDevice device;
  const std::span<std::byte> all(memory);
  const cuda::CudaEncoder encoder(device, kSlot,
                                  {all.first(bytes.device), all.subspan(bytes.device, bytes.host)});
  const std::array<float, 4> source{1, -2, 3, 0};
  for (int i = 0; i < kCallers; ++i) {
    EXPECT_THROW(encoder.absolute_max(reinterpret_cast<const std::byte*>(source.data()), DType::f32,
                                      sizeof source, 1, std::ssize(source)),
                 Error);
  }
}

}  // namespace
}  // namespace sluice
