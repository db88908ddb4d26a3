#include "src/plan/rates.h"

#include <gtest/gtest.h>

#include "tests/support/temp.h"

namespace sluice {
namespace {

TEST(Rates, AreAssumedUntilTheyAreMeasured) {
  test::TempDir dir;
  Rates rates = remembered_rates(dir.path() / "none.json", dir.path());
  EXPECT_FALSE(rates.disk_measured);
  EXPECT_FALSE(rates.memory_measured);
  EXPECT_GT(rates.disk, 0);
}

TEST(Rates, AreRememberedForTheirDevice) {
  test::TempDir dir;
  std::filesystem::path file = dir.path() / "cache" / "rates.json";
  ASSERT_TRUE(remember_rates(file, dir.path(), {.disk = 3e9}));
  ASSERT_TRUE(remember_rates(file, "/proc", {.disk = 1e6, .memory = 5e10}));
  Rates rates = remembered_rates(file, dir.path());
  EXPECT_EQ(rates.disk, 3e9);
  EXPECT_EQ(rates.memory, 5e10);
  EXPECT_TRUE(rates.disk_measured && rates.memory_measured);
  EXPECT_EQ(remembered_rates(file, "/proc").disk, 1e6);
}

TEST(Rates, ALinkIsRememberedForItsDevice) {
  test::TempDir dir;
  std::filesystem::path file = dir.path() / "rates.json";
  ASSERT_TRUE(remember_rates(file, dir.path(), {.link = 25e9, .device = "one GPU"}));
  ASSERT_TRUE(remember_rates(file, dir.path(), {.disk = 1e9, .link = 50e9, .device = "another"}));
  EXPECT_EQ(remembered_rates(file, dir.path(), "one GPU").link, 25e9);
  EXPECT_EQ(remembered_rates(file, dir.path(), "another").link, 50e9);
  EXPECT_TRUE(remembered_rates(file, dir.path(), "another").link_measured);
  EXPECT_FALSE(remembered_rates(file, dir.path(), "a third").link_measured);
}

TEST(Rates, DamagedFilesCountAsNone) {
  test::TempDir dir;
  std::filesystem::path file = dir.path() / "rates.json";
  for (const char* text : {"", "[]", "{\"disks\": 3}", "{\"links\": []}", "{\"memory\": -1}",
                           "{\"memory\": \"x\"}", "nonsense"}) {
    test::write_file(file, text);
    EXPECT_FALSE(remembered_rates(file, dir.path()).memory_measured) << text;
    EXPECT_TRUE(remember_rates(file, dir.path(), {.disk = 2e9, .memory = 1e10})) << text;
    EXPECT_EQ(remembered_rates(file, dir.path()).memory, 1e10) << text;
  }
}

TEST(Rates, AStepTakesAsLongAsItsParts) {
  ReadPlan read;
  MemoryPlan memory;
  memory.sweep_bytes = 1'000'000'000;
  Rates rates{.disk = 1e9, .memory = 1e12};
  double slow = predict_speed(memory, read, rates).tokens_per_second;
  rates.disk = 2e9;
  EXPECT_NEAR(predict_speed(memory, read, rates).tokens_per_second, 2 * slow, 1e-6);
}

}  // namespace
}  // namespace sluice
