#include "kernels/cpu/membw.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/instruction_sets.h"

namespace sluice {
namespace {

// A megabyte in a nanosecond would be reading nothing; less than 1 MB/s no machine does.
TEST(ReadBandwidth, IsARateThatMemoryCanHave) {
  ThreadPool pool(2);
  const std::vector<std::byte> memory((4 << 20) + 12345, std::byte{1});
  const double rate = read_bandwidth(memory, pool);
  EXPECT_GT(rate, 1e6);
  EXPECT_LT(rate, 1e15);
}

// A way that left bytes out would make every kernel look slow beside it.
TEST(ReadBandwidth, EveryWayReadsEveryWord) {
  std::mt19937 random(7);
  std::vector<uint32_t> memory(1 << 18);
  uint32_t expected = 0;
  for (uint32_t& word : memory) expected ^= word = static_cast<uint32_t>(random());
  using enum cpu::ReadWay;
  for (const InstructionSet& set : instruction_sets()) {
    if (set.ops == nullptr || !set.supported()) continue;
    for (cpu::ReadWay way : {plain, into_l1, four_into_l1, four_into_l2}) {
      const auto bytes = std::as_bytes(std::span(memory));
      EXPECT_EQ(set.ops->read(bytes.data(), static_cast<int64_t>(bytes.size()), way), expected)
          << set.name << ", way " << static_cast<int>(way);
    }
  }
}

}  // namespace
}  // namespace sluice
