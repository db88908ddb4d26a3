#include "src/load/disk_rate.h"

#include <gtest/gtest.h>

#include "src/base/units.h"

namespace sluice {
namespace {

// Reads of 2 MiB that arrive at some rate, one after the other.
class Reads {
 public:
  Reads& arrive(uint64_t bytes, double rate, bool busy = true) {
    for (; bytes >= 2 * MiB; bytes -= 2 * MiB) {
      seconds_ += static_cast<double>(2 * MiB) / rate;
      disk_.arrived(2 * MiB, seconds_, busy);
    }
    return *this;
  }
  std::optional<double> rate() const { return disk_.sustained(); }

 private:
  DiskRate disk_;
  double seconds_ = 0;
};

TEST(DiskRate, IsTheDisksWhenAllIsQuiet) {
  EXPECT_NEAR(Reads().arrive(GiB, 3e9).rate().value(), 3e9, 1e6);
}

TEST(DiskRate, DoesNotCountWhatIsSlowForAWhile) {
  EXPECT_NEAR(Reads().arrive(512 * MiB, 2e8).arrive(GiB, 3e9).rate().value(), 3e9, 1e6);
}

TEST(DiskRate, DoesNotCountALuckyMoment) {
  EXPECT_NEAR(Reads().arrive(GiB, 2e9).arrive(128 * MiB, 2e10).rate().value(), 2e9, 1e6);
}

TEST(DiskRate, DoesNotCountWhileTheDiskWaits) {
  Reads reads;
  for (int i = 0; i < 100; ++i) reads.arrive(32 * MiB, 1e8, false).arrive(32 * MiB, 3e9);
  EXPECT_NEAR(reads.rate().value(), 3e9, 1e6);
  EXPECT_FALSE(Reads().arrive(10 * GiB, 1e8, false).rate());
}

TEST(DiskRate, NeedsSomethingToBeSeenIn) {
  EXPECT_FALSE(Reads().rate());
  EXPECT_FALSE(Reads().arrive(250 * MiB, 3e9).rate());
  DiskRate all_at_once;
  all_at_once.arrived(10 * GiB, 0, true);
  EXPECT_FALSE(all_at_once.sustained());
}

}  // namespace
}  // namespace sluice
