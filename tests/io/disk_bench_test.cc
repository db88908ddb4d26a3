#include "io/disk_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <stop_token>
#include <string>

#include "src/base/units.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

using test::TempDir;

TEST(DiskBench, StaysInsideItsStagingArea) {
  for (uint64_t staging : {512 * KiB, 3 * MiB, 48 * MiB, 1024 * MiB}) {
    std::vector<ReadShape> settings = disk_settings(staging);
    ASSERT_FALSE(settings.empty());
    for (const ReadShape& s : settings) {
      EXPECT_GE(s.depth, 1);
      EXPECT_LE(s.depth, 64);
      EXPECT_LE(s.request_bytes * static_cast<uint64_t>(s.depth), staging);
    }
  }
}

TEST(DiskBench, ReadsWhatItSays) {
  TempDir dir;
  test::Random random("disk bench");
  std::vector<CheckpointFile> files;
  uint64_t total = 0;
  for (int i = 0; i < 3; ++i) {
    files.push_back(make_file(dir / std::to_string(i), random_bytes(random, i == 1 ? 0 : 700'001)));
    total += files.back().size;
  }
  Staging staging(2 * MiB);
  uint64_t bytes = static_cast<uint64_t>(random.between(1, 3'000'000));
  uint64_t start = static_cast<uint64_t>(random.between(0, 5'000'000));
  DiskSpeed speed = measure_setting(files, staging.span(), {256 * KiB, 4}, start, bytes);
  EXPECT_GE(speed.bytes, bytes);
  EXPECT_LT(speed.bytes, bytes + 256 * KiB);
  EXPECT_GT(speed.seconds, 0);

  DiskBandwidth bandwidth = measure_disk(files, staging.span(), total);
  EXPECT_EQ(bandwidth.settings.size(), disk_settings(staging.span().size()).size());
  for (const DiskSpeed& s : bandwidth.settings) {
    EXPECT_LE(s.bytes_per_second(), bandwidth.best.bytes_per_second());
  }
  EXPECT_THAT(bandwidth.how, testing::HasSubstr(format_size(bandwidth.best.setting.request_bytes)));
}

TEST(DiskBench, RefusesEmptyFiles) {
  TempDir dir;
  CheckpointFile file = make_file(dir / "empty", "");
  Staging staging(1 * MiB);
  error_of(ErrorKind::refused, [&] { measure_disk(std::span(&file, 1), staging.span()); });
}

TEST(DiskBench, AStopEndsIt) {
  TempDir dir;
  CheckpointFile file = make_file(dir / "file", std::string(1'000'000, 'x'));
  Staging staging(2 * MiB);
  std::stop_source stop;
  stop.request_stop();
  const std::span<const CheckpointFile> files(&file, 1);
  EXPECT_EQ(measure_setting(files, staging.span(), {256 * KiB, 4}, 0, file.size, nullptr,
                            stop.get_token())
                .bytes,
            0);
  EXPECT_TRUE(measure_disk(files, staging.span(), file.size, stop.get_token()).settings.empty());
}

}  // namespace
}  // namespace sluice::io
