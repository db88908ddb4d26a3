#include "io/sources.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice::io {
namespace {

// `copies` of one file, each on a disk of its own.
CheckpointIndex index_with(int copies) {
  CheckpointFile file{.name = "a", .path = "/0/a", .size = 1 << 30, .device = 0};
  CheckpointIndex index({file}, {}, {});
  for (int i = 1; i < copies; ++i) {
    file.path = std::filesystem::path("/") / std::to_string(i) / "a";
    file.device = static_cast<uint64_t>(i);
    index.add_copy({0, file});
  }
  return index;
}

TEST(Sources, OneDiskIsChosenAlways) {
  CheckpointIndex index = index_with(1);
  Sources sources(index);
  EXPECT_EQ(sources.files().size(), 1u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sources.choose(0, 1 << 20), 0u);
  EXPECT_FALSE(sources.give_up(0));
}

TEST(Sources, RequestsAreDividedByWhatDisksGive) {
  CheckpointIndex index = index_with(2);
  Sources sources(index);
  constexpr uint64_t kBlock = 1 << 20;
  // Disk 0 takes 1 ms for a block, disk 1 4 ms; 8 are in flight at any time.
  using Clock = std::chrono::steady_clock;
  struct Disk {
    std::vector<Clock::time_point> due;
    std::chrono::microseconds each;
    int done = 0;
  };
  Disk disks[2] = {{{}, std::chrono::microseconds(1000)}, {{}, std::chrono::microseconds(4000)}};
  auto submit = [&] {
    Disk& d = disks[sources.choose(0, kBlock)];
    Clock::time_point from = d.due.empty() ? Clock::now() : std::max(Clock::now(), d.due.back());
    d.due.push_back(from + d.each);
  };
  for (int i = 0; i < 8; ++i) submit();
  while (disks[0].done + disks[1].done < 400) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (uint32_t i = 0; i < 2; ++i) {
      Disk& d = disks[i];
      while (!d.due.empty() && d.due.front() <= Clock::now()) {
        d.due.erase(d.due.begin());
        ++d.done;
        sources.arrived(i, kBlock);
        submit();
      }
    }
  }
  double share = static_cast<double>(disks[0].done) / (disks[0].done + disks[1].done);
  EXPECT_GT(share, 0.6) << "4 of 5 would be exact; machines are noisy";
  EXPECT_LT(share, 0.95);
}

TEST(Sources, ACopyTakesThePlaceOfWhatFails) {
  CheckpointIndex index = index_with(3);
  Sources sources(index);
  EXPECT_TRUE(sources.give_up(1));
  EXPECT_NE(sources.files()[1].path, "/1/a");
  EXPECT_EQ(sources.files().size(), 3u);
  for (int i = 0; i < 20; ++i) EXPECT_NE(sources.choose(0, 1000), 1u);
  EXPECT_TRUE(sources.give_up(0));
  EXPECT_EQ(sources.choose(0, 1000), 2u);
  EXPECT_EQ(sources.files()[0].path, "/2/a");
  EXPECT_FALSE(sources.give_up(2));
}

}  // namespace
}  // namespace sluice::io
