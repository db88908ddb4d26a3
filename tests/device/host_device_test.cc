#include "src/device/host_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

TEST(HostDevice, ItsMemoryIsTheProcesssAndWorkIsDoneAtOnce) {
  Ledger ledger;
  std::unique_ptr<Device> device = make_host_device();
  EXPECT_FALSE(device->has_own_memory());
  Buffer a = device->memory(ledger, Use::weights, "a", 100, Buffer::Touch::now);
  Buffer b = device->memory(ledger, Use::weights, "b", 100, Buffer::Touch::now);
  EXPECT_EQ(ledger.used(Place::host), 2 * Buffer::charged_bytes(100));
  std::ranges::fill(a.bytes(), std::byte{7});
  std::unique_ptr<DeviceStream> stream = device->stream();
  stream->copy(b.data(), a.data(), 50);
  EXPECT_EQ(b.data()[49], std::byte{7});
  EXPECT_EQ(b.data()[50], std::byte{0});
  stream->clear(b.data(), 10);
  EXPECT_EQ(b.data()[9], std::byte{0});
  EXPECT_EQ(b.data()[10], std::byte{7});
}

}  // namespace
}  // namespace sluice
