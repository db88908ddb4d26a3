#include "src/kv/storage.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "src/device/host_device.h"
#include "tests/support/random.h"
#include "tests/support/simt/emulated_device.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

constexpr std::array<int32_t, kTiers> kBlocks = {6, 4, 8};  // of each tier
constexpr uint64_t kReserve = 1 << 20;                      // of an emulated device

// Returns the layout of `layers` layers.
KvLayout layout(size_t layers) {
  const KvSpec spec{.heads = 2, .key_dim = 8, .value_dim = 6};
  return kv_layout(KvSpecs(layers, {spec}), {.block_size = 4});
}

// A storage, and what each of its blocks ought to hold.
class Blocks {
 public:
  Blocks(Device& device, const std::filesystem::path& directory)
      : stream_(device.stream()),
        storage_(device, *stream_, ledger_, layout(2), kBlocks[0],
                 {kBlocks[1], kBlocks[2], directory}) {
    for (size_t t = 0; t < kTiers; ++t) numbers_[t].resize(static_cast<size_t>(kBlocks[t]));
    for (int32_t b = 0; b < kBlocks[0]; ++b) fill(b);
    std::vector<BlockCopy> copies;
    for (Tier tier : {Tier::host, Tier::disk}) {
      for (int32_t b = 0; b < kBlocks[static_cast<size_t>(tier)]; ++b) {
        copies.push_back({{Tier::device, b % kBlocks[0]}, {tier, b}});
        at(copies.back().to) = at(copies.back().from);
      }
    }
    storage_.begin_copies(copies);
  }

  // A step: a device block of which nothing is on its way gets other contents.
  void fill(int32_t block) {
    if (late_.contains(block)) return;
    at({Tier::device, block}) = ++last_;
    storage_.scatter(content(last_), block);
  }

  void copy(test::Random& random) {
    std::vector<BlockCopy> copies;
    late_.clear();
    reading_.clear();
    for (int64_t n = random.between(0, 8); n > 0; --n) add(random, copies);
    storage_.begin_copies(copies);
    if (random.uniform() < 0.3) finish();
  }

  void finish() {
    storage_.finish_copies();
    late_.clear();
    reading_.clear();
  }

  void expect() {
    std::vector<std::byte> found(storage_.slot_bytes());
    for (int32_t b = 0; b < kBlocks[0]; ++b) {
      if (late_.contains(b)) continue;
      storage_.gather(b, found);
      std::vector<std::byte> wanted = content(at({Tier::device, b}));
      ASSERT_EQ(std::memcmp(found.data(), wanted.data(), layout(2).page_bytes()), 0)
          << "block " << b;
    }
  }

 private:
  // Adds a copy as BlockManager does: a block read from disk is not written to again in the same
  // list.
  void add(test::Random& random, std::vector<BlockCopy>& copies) {
    auto from_tier = static_cast<Tier>(random.between(0, kTiers - 1));
    auto to_tier =
        from_tier == Tier::disk ? Tier::device : static_cast<Tier>(random.between(0, kTiers - 1));
    auto any = [&](Tier tier) {
      return static_cast<int32_t>(random.between(0, kBlocks[static_cast<size_t>(tier)] - 1));
    };
    BlockPlace from{from_tier, any(from_tier)}, to{to_tier, any(to_tier)};
    if (from_tier == Tier::host && to_tier == Tier::host) return;
    if (from_tier == to_tier && from.block == to.block) return;
    if (to.tier == Tier::device && reading_.contains(to.block)) return;
    if (from.tier == Tier::device && reading_.contains(from.block)) reading_.clear();  // waits
    copies.push_back({from, to});
    at(to) = at(from);
    if (from_tier == Tier::disk) reading_.insert(to.block);
    if (from_tier != Tier::device && to_tier == Tier::device) late_.insert(to.block);
  }

  uint64_t& at(BlockPlace place) {
    return numbers_[static_cast<size_t>(place.tier)][static_cast<size_t>(place.block)];
  }
  std::vector<std::byte> content(uint64_t number) const {
    std::vector<std::byte> bytes(storage_.slot_bytes());
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(number * 31 + i * (number % 7 + 1));
    return bytes;
  }

  Ledger ledger_;
  std::unique_ptr<DeviceStream> stream_;
  KvStorage storage_;
  std::array<std::vector<uint64_t>, kTiers> numbers_;
  std::set<int32_t> late_;     // device blocks that are coming back
  std::set<int32_t> reading_;  // of these, from disk
  uint64_t last_ = 0;
};

void random_copies(Device& device, int steps) {
  test::TempDir dir;
  test::Random random("KV storage");
  Blocks blocks(device, dir.path());
  for (int step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) {
    blocks.copy(random);
    blocks.fill(static_cast<int32_t>(random.between(0, kBlocks[0] - 1)));
    blocks.expect();
  }
  blocks.finish();
  blocks.expect();
}

TEST(KvStorage, BlocksHoldWhatWasCopiedWhileOthersComeFromDisk) {
  random_copies(*make_host_device(), 2000);
}

TEST(KvStorage, TheSameOnADeviceWhoseWorkIsLate) {
  for (simt::Schedule schedule : {simt::Schedule::lazy, simt::Schedule::shuffled}) {
    auto device = simt::make_emulated_device({.schedule = schedule, .bytes = kReserve});
    device->reserve(kReserve);
    random_copies(*device, 100);
  }
}

// One whose blocks have a file behind them, and nothing between.
struct OnDisk {
  test::TempDir directory;
  std::unique_ptr<Device> device = make_host_device();
  Ledger ledger;
  KvStorage storage{*device,   host_stream(), ledger,
                    layout(1), kBlocks[0],    {0, kBlocks[2], directory.path()}};
};

TEST(KvStorage, WhatCannotBeReadBackIsToldToWhoeverNeedsIt) {
  OnDisk on_disk;
  KvStorage& storage = on_disk.storage;
  std::vector<BlockCopy> out, back;
  for (int32_t b = 0; b < kBlocks[0]; ++b) {
    out.push_back({{Tier::device, b}, {Tier::disk, b}});
    back.push_back({{Tier::disk, b}, {Tier::device, b}});
  }
  storage.begin_copies(out);
  storage.begin_copies(back);
  storage.finish_copies();
  for (const auto& entry : std::filesystem::directory_iterator(on_disk.directory.path()))
    std::filesystem::resize_file(entry.path(), 0);
  back.insert(back.end(), out.begin(), out.begin() + 1);
  back.insert(back.end(), back.begin(), back.begin() + 2);
  EXPECT_THROW(
      {
        storage.begin_copies(back);
        storage.finish_copies();
      },
      Error);
  EXPECT_THROW(storage.begin_copies({}), Error);
  EXPECT_THROW(storage.begin_copies({out.data(), 1}), Error);
}

// A request may end while its blocks are still being read.
TEST(KvStorage, EndsWhileBlocksComeFromDisk) {
  OnDisk on_disk;
  KvStorage& storage = on_disk.storage;
  std::vector<BlockCopy> copies;
  for (int32_t b = 0; b < kBlocks[0]; ++b) copies.push_back({{Tier::device, b}, {Tier::disk, b}});
  for (int32_t b = 0; b < kBlocks[0]; ++b) copies.push_back({{Tier::disk, b}, {Tier::device, b}});
  storage.begin_copies(copies);
}

TEST(KvStorage, EndsWhileBlocksComeBackToADevice) {
  auto device = simt::make_emulated_device({.schedule = simt::Schedule::lazy, .bytes = kReserve});
  device->reserve(kReserve);
  Ledger ledger;
  auto stream = device->stream();
  {
    KvStorage storage(*device, *stream, ledger, layout(1), kBlocks[0], {kBlocks[1], 0, {}});
    std::vector<BlockCopy> copies;
    for (int32_t b = 0; b < kBlocks[1]; ++b) copies.push_back({{Tier::host, b}, {Tier::device, b}});
    storage.begin_copies(copies);
    stream->synchronize();
  }
  EXPECT_EQ(ledger.used(Place::device), 0u);
  EXPECT_EQ(ledger.used(Place::host), 0u);
}

}  // namespace
}  // namespace sluice
