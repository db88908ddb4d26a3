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

TEST(HostDevice, CopiesRowsFromOnePitchToAnother) {
  Ledger ledger;
  std::unique_ptr<Device> device = make_host_device();
  Buffer from = device->memory(ledger, Use::weights, "from", 100, Buffer::Touch::now);
  Buffer to = device->memory(ledger, Use::weights, "to", 100, Buffer::Touch::now);
  for (size_t i = 0; i < 100; ++i) from.data()[i] = static_cast<std::byte>(i);
  device->stream()->copy_rows(to.data(), 5, from.data() + 1, 40, 3, 3);
  const std::byte none{0};
  const std::vector<std::byte> expected{std::byte{1},  std::byte{2},  std::byte{3},  none, none,
                                        std::byte{41}, std::byte{42}, std::byte{43}, none, none,
                                        std::byte{81}, std::byte{82}, std::byte{83}, none, none};
  EXPECT_TRUE(std::ranges::equal(to.bytes().first(expected.size()), expected));
}

}  // namespace
}  // namespace sluice
