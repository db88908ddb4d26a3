#include "kernels/cpu/membw.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace sluice
