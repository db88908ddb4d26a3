#include "src/load/shape_trial.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace sluice {
namespace {

// Seconds that a disk takes for one read while so many are in flight.
using Disk = std::function<double(const io::ReadShape&)>;

// Each read takes `latency` at least, and all together give no more than `rate` and `requests` a
// second.
Disk disk(double latency, double rate, double requests) {
  return [=](const io::ReadShape& s) {
    const auto bytes = static_cast<double>(s.request_bytes);
    return std::max({latency / s.depth, bytes / rate, 1 / requests});
  };
}

// Reads until the trial is over, or `most` bytes. `noise(now)`: by how
// much others slow the disk down.
io::ReadShape tried(
    const Disk& disk, const std::function<double(double)>& noise = [](double) { return 1.0; },
    uint64_t most = uint64_t{4} << 30) {
  ShapeTrial trial({}, true);
  double now = 0;
  for (uint64_t bytes = 0; bytes < most && !trial.verdict();) {
    const io::ReadShape shape = trial.shape();
    now += disk(shape) * noise(now);
    trial.arrived(shape.request_bytes, now, true);
    bytes += shape.request_bytes;
  }
  return trial.verdict().value_or(io::ReadShape{});
}

TEST(ShapeTrial, DisksFindTheirShape) {
  // 500 MB/s and 2,000 requests a second, as a cloud's quota has them: all are as fast.
  EXPECT_EQ(tried(disk(1e-3, 500e6, 2000)), kReadShapes[0]);
  // Few requests a second: large ones.
  EXPECT_EQ(tried(disk(1e-3, 4e9, 1000)), kReadShapes[0]);
  // A virtual disk that slows down with what is in flight.
  const Disk crowded = [](const io::ReadShape& s) {
    const auto bytes = static_cast<double>(s.request_bytes);
    return bytes / (s.bytes_in_flight() > 16 << 20 ? 2.3e9 : 3.5e9) + 40e-6;
  };
  EXPECT_EQ(tried(crowded), kReadShapes[1]);
  // Latency counts: as many as can be in flight.
  EXPECT_EQ(
      tried([](const io::ReadShape& s) { return 0.02 / s.depth * (s.depth == 64 ? 0.1 : 1); }),
      kReadShapes[3]);
}

TEST(ShapeTrial, ABusyMomentDecidesNothing) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    // A neighbour takes nine tenths of the disk for a while.
    const double begin = std::uniform_real_distribution(0.0, 0.5)(random);
    const double end = begin + std::uniform_real_distribution(0.0, 1.0)(random);
    auto noise = [&](double now) { return now >= begin && now < end ? 10.0 : 1.0; };
    EXPECT_EQ(tried(disk(1e-3, 3e9, 1e6), noise), kReadShapes[0]) << seed;
  }
}

TEST(ShapeTrial, WithoutEnoughBytesThereIsNoVerdict) {
  ShapeTrial trial({}, true);
  for (int i = 0; i < 100; ++i) trial.arrived(1 << 20, 0.001 * i, true);
  EXPECT_FALSE(trial.verdict());
  for (int i = 0; i < 10'000; ++i) trial.arrived(1 << 20, 0.1 + 0.001 * i, false);
  EXPECT_FALSE(trial.verdict());
}

TEST(ShapeTrial, WhatIsKnownIsNotTriedAgain) {
  ShapeTrial trial(kReadShapes[1], false);
  EXPECT_EQ(trial.shape(), kReadShapes[1]);
  EXPECT_EQ(trial.least_request_bytes(), kReadShapes[1].request_bytes);
  for (int i = 0; i < 10'000; ++i) trial.arrived(1 << 20, 0.001 * i, true);
  EXPECT_EQ(trial.shape(), kReadShapes[1]);
  EXPECT_FALSE(trial.verdict());
}

}  // namespace
}  // namespace sluice
