#include "src/plan/rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "io/file.h"
#include "src/base/json.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

const RateKeys kKeys{"1", "bf16 none", "auto 2 threads", "cpu"};

class RatesTest : public testing::Test {
 protected:
  bool remember(RateKind kind, double rate, RateSource source = RateSource::runs,
                const RateKeys& keys = kKeys) {
    const Observation seen{kind, rate, source};
    return remember_rates(file, keys, {&seen, 1});
  }
  Rates rates(const RateKeys& keys = kKeys) { return remembered_rates(file, keys); }

  test::TempDir dir;
  std::filesystem::path file = dir.path() / "cache" / "rates.json";
};

TEST_F(RatesTest, AreAssumedUntilTheyAreSeen) {
  const Rates none = rates();
  for (const Rate& rate : {none.disk, none.sweep, none.memory, none.link}) {
    EXPECT_EQ(rate.source, RateSource::assumed);
    EXPECT_GT(rate.bytes_per_second, 0);
  }
  EXPECT_FALSE(has_rate(file, kKeys, RateKind::disk));
}

TEST_F(RatesTest, BelongToWhatTheyWereSeenOf) {
  ASSERT_TRUE(remember(RateKind::disk, 3e9));
  ASSERT_TRUE(remember(RateKind::sweep, 2e9));
  ASSERT_TRUE(remember(RateKind::step, 5e10));
  ASSERT_TRUE(remember(RateKind::link, 25e9));
  EXPECT_EQ(rates().disk.bytes_per_second, 3e9);
  EXPECT_EQ(rates().sweep.bytes_per_second, 2e9);
  EXPECT_EQ(rates().memory.bytes_per_second, 5e10);
  EXPECT_EQ(rates().link.bytes_per_second, 25e9);
  EXPECT_EQ(rates().link.source, RateSource::runs);
  RateKeys other = kKeys;
  other.weights = "bf16 fp8_per_channel";
  EXPECT_EQ(rates(other).sweep.bytes_per_second, 3e9) << "the disk is the same";
  EXPECT_EQ(rates(other).memory.source, RateSource::assumed);
  other.disk = "2";
  EXPECT_EQ(rates(other).sweep.source, RateSource::assumed);
  other.device = "another";
  EXPECT_EQ(rates(other).link.source, RateSource::assumed);
}

TEST_F(RatesTest, RanksOnHostsCountBeforeRanksOnOne) {
  RateKeys one = kKeys;
  one.several_hosts = false;
  ASSERT_TRUE(remember(RateKind::ranks, 5e9, RateSource::runs, one));
  ASSERT_TRUE(remember(RateKind::messages, 2e5, RateSource::runs, one));
  EXPECT_EQ(rates().ranks.bytes_per_second, 5e9);
  EXPECT_EQ(rates().messages.bytes_per_second, 2e5);
  ASSERT_TRUE(remember(RateKind::messages, 20, RateSource::runs)) << "across a continent";
  EXPECT_EQ(rates(one).messages.bytes_per_second, 20);
  EXPECT_EQ(rates().ranks.source, RateSource::runs);
}

TEST_F(RatesTest, BareRatesCountLess) {
  ASSERT_TRUE(remember(RateKind::disk, 3e9, RateSource::bench));
  ASSERT_TRUE(remember(RateKind::memory, 2e10, RateSource::bench));
  EXPECT_LT(rates().disk.bytes_per_second, 3e9);
  EXPECT_GT(rates().disk.bytes_per_second, 2.5e9);
  EXPECT_LT(rates().memory.bytes_per_second, 2e10);
  EXPECT_EQ(rates().disk.source, RateSource::bench);
  ASSERT_TRUE(remember(RateKind::step, 1.5e10));
  EXPECT_EQ(rates().memory.bytes_per_second, 1.5e10) << "a run has shown it";
  EXPECT_EQ(rates().memory.source, RateSource::runs);
}

TEST_F(RatesTest, WhatADeviceSaysOfItsMemoryCountsUntilARunHasShownIt) {
  ASSERT_TRUE(remember(RateKind::memory, 2e10, RateSource::bench));
  RateKeys gpu = kKeys;
  gpu.processor = "a GPU";
  gpu.memory_rate = 3e12;
  EXPECT_GT(rates(gpu).memory.bytes_per_second, 2e12);
  EXPECT_EQ(rates(gpu).memory.source, RateSource::assumed);
  ASSERT_TRUE(remember(RateKind::step, 2e12, RateSource::runs, gpu));
  EXPECT_EQ(rates(gpu).memory.bytes_per_second, 2e12);
}

TEST_F(RatesTest, NeitherBusyNorLuckyMomentsCount) {
  for (double rate : {2.9e9, 3e9, 3.1e9, 3e9}) ASSERT_TRUE(remember(RateKind::disk, rate));
  for (double rate : {5e8, 9e9, 4e8, 3e8}) {
    ASSERT_TRUE(remember(RateKind::disk, rate));
    EXPECT_NEAR(rates().disk.bytes_per_second, 3e9, 1.1e8) << rate;
  }
}

TEST_F(RatesTest, ADiskThatHasChangedIsBelievedAfterSomeRuns) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(remember(RateKind::disk, 3e9));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(rates().disk.bytes_per_second, 3e9) << i;
    ASSERT_TRUE(remember(RateKind::disk, 1e9));
  }
  EXPECT_EQ(rates().disk.bytes_per_second, 1e9);
  ASSERT_TRUE(remember(RateKind::disk, 3e9));
  ASSERT_TRUE(remember(RateKind::disk, 3e9));
  ASSERT_TRUE(remember(RateKind::disk, 3e9));
  EXPECT_EQ(rates().disk.bytes_per_second, 3e9) << "and a faster one sooner";
}

ExpertReuse some_reuse(uint64_t uses) {
  ExpertReuse seen{.experts = 100, .slots = 25, .uses = uses, .hits = uses / 2};
  seen.again.front() = uses / 4;
  seen.again.back() = uses / 4;
  return seen;
}

TEST_F(RatesTest, TheReuseOfExpertsIsTheLatestRuns) {
  EXPECT_FALSE(remembered_reuse(file, "a").is_known());
  EXPECT_FALSE(remember_reuse(file, "a", some_reuse(99))) << "fewer uses than experts";
  ASSERT_TRUE(remember(RateKind::disk, 3e9));
  ASSERT_TRUE(remember_reuse(file, "a", some_reuse(1000)));
  ASSERT_TRUE(remember_reuse(file, "b", some_reuse(2000)));
  ASSERT_TRUE(remember_reuse(file, "a", some_reuse(3000)));
  EXPECT_EQ(remembered_reuse(file, "a"), some_reuse(3000));
  EXPECT_EQ(remembered_reuse(file, "b"), some_reuse(2000));
  EXPECT_FALSE(remembered_reuse(file, "c").is_known());
  EXPECT_EQ(rates().disk.bytes_per_second, 3e9) << "the rest of the file stays";
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(remember_reuse(file, std::to_string(i), some_reuse(1000)));
  EXPECT_FALSE(remembered_reuse(file, "a").is_known()) << "others are later";
  EXPECT_FALSE(remembered_reuse(file, "7").is_known());
  EXPECT_TRUE(remembered_reuse(file, "39").is_known());
  EXPECT_TRUE(remembered_reuse(file, "8").is_known());
}

TEST_F(RatesTest, AReuseThatCannotBeIsNone) {
  auto written = [&](const char* change) {
    EXPECT_TRUE(remember_reuse(file, "a", some_reuse(1000)));
    Json json = parse_json(io::read_small_file(file, 1 << 20), "rates");
    json["experts"]["a"].merge_patch(Json::parse(change));
    std::ofstream(file) << json.dump();
    return remembered_reuse(file, "a");
  };
  EXPECT_TRUE(written("{}").is_known());
  for (const char* change :
       {R"({"uses": 499})", R"({"uses": -1})", R"({"hits": 1001})", R"({"slots": 101})",
        R"({"experts": 18446744073709551615})", R"({"uses": 18446744073709551615})",
        R"({"again": [1]})", R"({"again": null})", R"({"experts": 0})", R"({"uses": "many"})"})
    EXPECT_FALSE(written(change).is_known()) << change;
  std::ofstream(file) << R"({"experts": {"a": 7}})";
  EXPECT_FALSE(remembered_reuse(file, "a").is_known());
}

TEST_F(RatesTest, WhatCannotBeARateIsNotKept) {
  for (double rate : {0.0, -1.0, 1e300, std::nan("")}) {
    EXPECT_TRUE(remember(RateKind::disk, rate));
    EXPECT_FALSE(has_rate(file, kKeys, RateKind::disk)) << rate;
  }
}

TEST_F(RatesTest, DamagedAndOldFilesCountAsNone) {
  std::filesystem::create_directories(file.parent_path());
  for (const char* text :
       {"", "[]", "nonsense", "{\"disks\": 3}", "{\"disks\": {\"1\": 1.5e9}, \"memory\": 2e10}",
        "{\"disks\": {\"1\": [{\"rate\": -1}, {\"rate\": \"x\"}, 7, {\"from\": \"runs\"}]}}",
        "{\"disks\": {\"1\": [{\"rate\": 1e400}]}}", "{\"memory\": {\"host\": [1e10]}}"}) {
    test::write_file(file, text);
    EXPECT_EQ(rates().disk.source, RateSource::assumed) << text;
    EXPECT_EQ(rates().memory.source, RateSource::assumed) << text;
    EXPECT_TRUE(remember(RateKind::disk, 2e9)) << text;
    EXPECT_EQ(rates().disk.bytes_per_second, 2e9) << text;
  }
}

TEST_F(RatesTest, WithoutAPlaceNothingIsWritten) {
  const Observation seen{RateKind::disk, 1e9};
  EXPECT_FALSE(remember_rates({}, kKeys, {&seen, 1}));
  test::write_file(dir.path() / "file", "x");
  EXPECT_FALSE(remember_rates(dir.path() / "file" / "rates.json", kKeys, {&seen, 1}));
}

TEST_F(RatesTest, TheShapeOfReadsIsWhatMostLoadsFound) {
  const io::ReadShape few{2 << 20, 16}, small{1 << 20, 16};
  auto shape = [&] { return remembered_shape(file, kKeys); };
  auto remember = [&](const io::ReadShape& s, RateSource from = RateSource::runs) {
    return remember_shape(file, kKeys, s, from);
  };
  EXPECT_EQ(shape().source, RateSource::assumed);
  ASSERT_TRUE(remember(small, RateSource::bench));
  EXPECT_EQ(shape().shape, small);
  EXPECT_EQ(shape().source, RateSource::bench);
  EXPECT_EQ(shape().loads, 0);
  ASSERT_TRUE(remember(few));
  EXPECT_EQ(shape().shape, few) << "a load has seen what it reaches";
  ASSERT_TRUE(remember(small));
  ASSERT_TRUE(remember(few));
  EXPECT_EQ(shape().shape, few);
  EXPECT_TRUE(shape().is_settled());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(remember(small));
  EXPECT_EQ(shape().shape, small);
  RateKeys other = kKeys;
  other.disk = "2";
  EXPECT_EQ(remembered_shape(file, other).source, RateSource::assumed);
  ASSERT_TRUE(RatesTest::remember(RateKind::disk, 3e9));
  ASSERT_TRUE(forget_shape(file, kKeys));
  EXPECT_EQ(shape().source, RateSource::assumed);
  EXPECT_EQ(rates().disk.bytes_per_second, 3e9);
}

TEST_F(RatesTest, ShapesThatNobodyWouldAskWithCountAsNone) {
  for (const char* shape :
       {R"({"request_bytes": 0, "depth": 16})", R"({"request_bytes": 1048576, "depth": 100000})",
        R"({"request_bytes": 1000000, "depth": 16})", R"({"request_bytes": -1, "depth": -1})",
        R"({"request_bytes": 1048576, "depth": 1})", "3", "null"}) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << R"({"shapes": {"1": [)" << shape << "]}}";
    EXPECT_EQ(remembered_shape(file, kKeys).source, RateSource::assumed) << shape;
  }
}

TEST(Passes, TakeAsLongAsTheirParts) {
  ReadPlan read;
  MemoryPlan memory;
  memory.sweep_bytes = 1'000'000'000;
  Rates rates{.sweep = {1e9}, .memory = {1e12}};
  const double slow = predict_speed(memory, read, rates);
  rates.sweep = {2e9};
  EXPECT_NEAR(predict_speed(memory, read, rates), 2 * slow, 1e-6);
}

// A step of several tokens reads each expert that any of them has chosen once.
TEST(Passes, OfSeveralTokensMeetMoreExperts) {
  constexpr int kExperts = 64;
  constexpr uint64_t kBytes = 1'000'000;
  Param common, routed;
  routed.share = 8.0 / kExperts;
  ReadPlan read;
  read.params.resize(1 + kExperts);
  for (uint32_t p = 0; p <= kExperts; ++p) {
    read.params[p].param = p == 0 ? &common : &routed;
    read.params[p].bytes = kBytes;
    if (p == 0) continue;
    read.params[p].tier = Tier::cached;
    read.experts.push_back({.first_param = p, .end_param = p + 1});
  }
  EXPECT_EQ(read.step_bytes(), 9 * kBytes);
  EXPECT_EQ(read.experts_of_step(), 8u);
  EXPECT_EQ(read.experts_of_step(16), 56u);  // 64 (1 - (1 - 1/8)^16)
  EXPECT_NEAR(static_cast<double>(read.step_bytes(16)), 57.4e6, 5e4);
  EXPECT_EQ(read.expert_misses(16), 1);
  read.expert_slots = 16;
  EXPECT_EQ(read.expert_misses(), 0.75);
  EXPECT_EQ(read.expert_misses(16), 0.75);
  // One token after another hit half; 56 experts at once, no more than the slots.
  read.expert_reuse = {.experts = kExperts, .slots = 16, .uses = 1000, .hits = 500};
  read.expert_reuse.again[8] = 500;
  EXPECT_NEAR(read.expert_misses(), 0.5, 0.01);
  EXPECT_NEAR(read.expert_misses(16), 1 - 16.0 / 56, 1e-9);
}

TEST(Passes, OfSeveralSequencesReadWhatTheirPlanSays) {
  MemoryPlan memory;
  memory.sweep_bytes = 1'000'000'000;
  memory.batch_sweep_bytes = 4'000'000'000;
  const Rates rates{.sweep = {1e9}, .memory = {1e15}};
  EXPECT_NEAR(predict_speed(memory, {}, rates), 1, 1e-3);
  EXPECT_NEAR(predict_speed(memory, {}, rates, 16), 4, 1e-3);
}

// Whatever a machine's rates: what a pass has shown predicts that pass, and passes of other budgets
// where the disk does not read beside compute.
TEST(Passes, ThatWereSeenPredictOthers) {
  std::mt19937_64 random(7);
  auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  auto bytes = [&] { return static_cast<uint64_t>(between(2e8, 2e10)); };
  for (int i = 0; i < 1000; ++i) {
    const double memory = between(5e9, 5e11);
    const Rates machine{.sweep = {between(1e8, 2e10)}, .memory = {memory}};
    Rates known{.memory = {memory}};
    const uint64_t weights = bytes();
    PassBytes first{.disk = bytes(), .memory = weights, .disk_share = between(0.6, 1)};
    const double seconds = pass_seconds(first, machine);
    const auto seen = observe_pass(first, seconds, known);
    ASSERT_TRUE(seen && seen->kind == RateKind::sweep);
    known.sweep = {seen->bytes_per_second};
    EXPECT_LE(std::abs(pass_seconds(first, known) / seconds - 1), 0.21);
    if (static_cast<double>(weights) / memory > 0.8 * seconds) continue;  // the disk hardly counts
    EXPECT_NEAR(pass_seconds(first, known) / seconds, 1, 1e-9);
    const PassBytes second{.disk = bytes(), .memory = weights};
    EXPECT_NEAR(pass_seconds(second, known) / pass_seconds(second, machine), 1, 1e-9);
  }
}

TEST(Passes, ShowTheSlowestOfWhatTheyNeed) {
  const Rates rates{.memory = {1e10}, .link = {2e10}};
  auto kind = [&](const PassBytes& bytes) { return observe_pass(bytes, 1, rates)->kind; };
  const uint64_t much = 4'000'000'000;
  EXPECT_EQ(kind({.memory = much}), RateKind::step);
  EXPECT_EQ(kind({.link = much, .memory = much}), RateKind::link);
  EXPECT_EQ(kind({.disk = much, .link = much, .memory = much}), RateKind::sweep);
  EXPECT_FALSE(observe_pass({.memory = kSustainedBytes - 1}, 1, rates)) << "caches hold it";
  EXPECT_FALSE(observe_pass({.disk = 1 << 20, .memory = much}, 1, rates));
  EXPECT_FALSE(observe_pass({.memory = much}, 0, rates)) << "there was no pass";
}

}  // namespace
}  // namespace sluice
