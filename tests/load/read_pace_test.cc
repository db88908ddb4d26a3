// The shapes that a load finds for disks of several kinds: they are simulated below io::Reader,
// with a clock of their own.
#include "src/load/read_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <vector>

#include "io/disk_bench.h"
#include "io/reader.h"
#include "src/base/units.h"

namespace sluice {
namespace {

struct DiskModel {
  double latency = 100e-6;  // of a read, at least [s]
  double overhead = 10e-6;  // of a read, in which the disk does nothing else [s]
  // Bytes a second while so many bytes are in flight.
  std::function<double(double)> rate;
};

// Reads are answered in their order, and each slot of `slot_bytes` is one request.
class SimulatedDisk final : public io::Reader {
 public:
  SimulatedDisk(DiskModel model, uint64_t slot_bytes, size_t slots)
      : model_(std::move(model)), slot_bytes_(slot_bytes), reads_left_(slots) {
    for (size_t s = slots; s > 0; --s) free_.push_back(static_cast<uint32_t>(s - 1));
  }

  double now() const { return now_; }

  std::string_view name() const override { return "simulated"; }
  std::string description() const override { return "simulated"; }
  uint64_t max_read() const override { return slot_bytes_; }
  int free_slots() const override { return static_cast<int>(free_.size()); }
  void submit(const io::ReadRequest& request) override {
    const uint32_t slot = free_.back();
    free_.pop_back();
    for (uint64_t at = 0; at < request.length; at += request.chunk_bytes) {
      const uint64_t bytes = std::min(request.chunk_bytes, request.length - at);
      reads_.push_back({slot, bytes, now_});
      in_flight_ += static_cast<double>(bytes);
      ++reads_left_[slot];
    }
  }
  io::ReadResult wait() override {
    while (true) {
      const Read read = reads_.front();
      reads_.pop_front();
      const double bytes = static_cast<double>(read.bytes);
      idle_from_ =
          std::max(idle_from_, read.submitted) + model_.overhead + bytes / model_.rate(in_flight_);
      in_flight_ -= bytes;
      now_ = std::max({now_, idle_from_, read.submitted + model_.latency});
      if (--reads_left_[read.slot] == 0) return {.tag = 0, .bytes = {}, .slot = read.slot};
    }
  }
  std::optional<io::ReadResult> poll() override { return std::nullopt; }
  void release(const io::ReadResult& result) override { free_.push_back(result.slot); }
  io::ReaderStats stats() const override { return {}; }

 private:
  struct Read {
    uint32_t slot = 0;
    uint64_t bytes = 0;
    double submitted = 0;
  };
  DiskModel model_;
  uint64_t slot_bytes_;
  std::vector<size_t> reads_left_;  // of each slot
  std::vector<uint32_t> free_;
  std::deque<Read> reads_;
  double in_flight_ = 0;  // bytes
  double now_ = 0;
  double idle_from_ = 0;
};

// Returns the rate of reads as measure_setting() makes them.
double bare_rate(const DiskModel& model, const io::ReadShape& shape) {
  SimulatedDisk disk(model, shape.request_bytes, static_cast<size_t>(shape.depth));
  uint64_t bytes = 0;
  for (; bytes < 512 * MiB; bytes += shape.request_bytes) {
    while (disk.free_slots() > 0)
      disk.submit({.length = shape.request_bytes, .chunk_bytes = shape.request_bytes});
    disk.release(disk.wait());
  }
  return static_cast<double>(bytes) / disk.now();
}

double best_bare_rate(const DiskModel& model) {
  double best = 0;
  for (const io::ReadShape& shape : io::disk_settings(64 * MiB))
    best = std::max(best, bare_rate(model, shape));
  return best;
}

// Reads as a load that encodes at once. Returns its rate.
double load(const DiskModel& model, ReadPace& pace, uint64_t bytes, uint64_t slot_bytes = 2 * MiB,
            size_t slots = 16) {
  SimulatedDisk disk(model, slot_bytes, slots);
  size_t in_flight = 0;
  for (uint64_t done = 0; done < bytes; done += slot_bytes) {
    for (; disk.free_slots() > 0 && in_flight < pace.most_in_flight(); ++in_flight)
      disk.submit({.length = slot_bytes, .chunk_bytes = pace.request_bytes()});
    const io::ReadResult read = disk.wait();
    pace.arrived(slot_bytes, disk.now(), in_flight);
    --in_flight;
    disk.release(read);
  }
  return static_cast<double>(bytes) / disk.now();
}

struct Found {
  io::ReadShape shape;
  uint64_t bytes = 0;  // that were read to find it
};
Found found(const DiskModel& model, const io::ReadShape& known = {}) {
  for (uint64_t bytes = 64 * MiB;; bytes += 64 * MiB) {
    ReadPace pace(known, true, 2 * MiB, 16);
    load(model, pace, bytes);
    if (pace.fastest()) return {*pace.fastest(), bytes};
    if (bytes > 4 * GiB) throw std::runtime_error("no verdict");
  }
}

// Returns the rate of a load of that shape, with the slots of every plan or with those of a plan
// that knows the shape.
double rate_of(const DiskModel& model, const io::ReadShape& shape, bool is_planned) {
  const uint64_t bytes = shape.bytes_in_flight();
  const uint64_t slot = is_planned ? std::max(bytes / 8, shape.request_bytes) : 2 * MiB;
  const size_t slots = is_planned ? (bytes + std::min(bytes, 8 * MiB)) / slot : 16;
  ReadPace pace(shape, false, slot, slots);
  return load(model, pace, GiB, slot, slots);
}

// 2.4 GB/s up to 5 MiB in flight, and 1.5 GB/s with 32 MiB.
DiskModel likes_few() {
  return {.rate = [](double in_flight) {
    constexpr double kMiB = 1 << 20;
    const double crowd = std::clamp((in_flight / kMiB - 5) / 27, 0.0, 1.0);
    return 2.4e9 - 0.9e9 * crowd;
  }};
}
// Each read takes 8 ms, however many there are.
DiskModel likes_many() {
  return {.latency = 8e-3, .overhead = 0, .rate = [](double) { return 8e9; }};
}
DiskModel quota() {
  return {.latency = 1e-3, .rate = [](double) { return 500e6; }};
}
DiskModel fast() {
  return {.rate = [](double) { return 7e9; }};
}
DiskModel likes_large_reads() {
  return {.overhead = 300e-6, .rate = [](double) { return 4e9; }};
}

TEST(ReadPace, ADiskThatIsFasterWithLessInFlightIsAskedForLess) {
  const DiskModel disk = likes_few();
  ASSERT_GT(bare_rate(disk, {256 * KiB, 16}), 1.3 * bare_rate(disk, {2 * MiB, 16}));
  const double best = best_bare_rate(disk);
  const Found first = found(disk);
  EXPECT_LE(first.shape.bytes_in_flight(), 4 * MiB);
  EXPECT_LE(first.bytes, GiB);
  for (bool is_planned : {false, true})
    EXPECT_GE(rate_of(disk, first.shape, is_planned), 0.95 * best) << is_planned;
  EXPECT_LT(rate_of(disk, {}, false), 0.75 * best);
}

TEST(ReadPace, OtherDisksKeepWhatIsFastestForThem) {
  for (const DiskModel& disk : {likes_many(), quota(), fast(), likes_large_reads()}) {
    const Found shape = found(disk);
    EXPECT_EQ(shape.shape, io::ReadShape{});
    EXPECT_LE(shape.bytes, GiB / 2) << "what cannot win is asked for once";
  }
}

// The known shape is the one that others have to beat.
TEST(ReadPace, WhatABenchmarkFoundIsTriedFirst) {
  const io::ReadShape few{256 * KiB, 16}, other{512 * KiB, 8};
  EXPECT_EQ(found(likes_few(), few).shape, few);
  EXPECT_EQ(found(likes_few(), other).shape, other) << "as fast, and in no list";
  EXPECT_EQ(found(likes_many(), few).shape, io::ReadShape{}) << "another disk has its place";
  EXPECT_EQ(found(quota(), few).shape, few);
}

// A load that finds no time to try all goes on as it is known to be best.
TEST(ReadPace, WithoutRoomForAllShapesNoneIsTried) {
  const io::ReadShape few{256 * KiB, 16};
  ReadPace pace(few, true, MiB, 16);
  load(likes_many(), pace, 4 * GiB, MiB, 16);
  EXPECT_FALSE(pace.fastest());
  EXPECT_EQ(pace.request_bytes(), few.request_bytes);
  EXPECT_EQ(pace.most_in_flight(), 5u) << "of 1 MiB, of which half a one has arrived";
}

}  // namespace
}  // namespace sluice
