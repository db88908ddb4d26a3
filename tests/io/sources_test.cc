#include "io/sources.h"

#include <gtest/gtest.h>

#include <chrono>

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
  // Disk 0 takes 1 ms for a block, disk 1 4 ms; 8 are in flight at any time. The clock is the
  // test's.
  struct Disk {
    std::chrono::milliseconds each;
    std::vector<Sources::Clock::time_point> due;  // in order
    int done = 0;
  };
  Disk disks[2] = {{std::chrono::milliseconds(1), {}}, {std::chrono::milliseconds(4), {}}};
  Sources::Clock::time_point now{};
  auto submit = [&] {
    Disk& disk = disks[sources.choose(0, kBlock, now)];
    disk.due.push_back((disk.due.empty() ? now : disk.due.back()) + disk.each);
  };
  for (int i = 0; i < 8; ++i) submit();
  while (disks[0].done + disks[1].done < 400) {
    now += std::chrono::milliseconds(1);
    for (uint32_t i = 0; i < 2; ++i) {
      while (!disks[i].due.empty() && disks[i].due.front() <= now) {
        disks[i].due.erase(disks[i].due.begin());
        ++disks[i].done;
        sources.arrived(i, kBlock, now);
        submit();
      }
    }
  }
  EXPECT_NEAR(disks[0].done / 400.0, 0.8, 0.02);
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
