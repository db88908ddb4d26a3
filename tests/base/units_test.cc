#include "src/base/units.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Units, ParsesWhatUsersWrite) {
  EXPECT_EQ(parse_size("6GiB", 0), 6 * GiB);
  EXPECT_EQ(parse_size("512MiB", 0), 512 * MiB);
  EXPECT_EQ(parse_size("1.5GB", 0), 1'500'000'000u);
  EXPECT_EQ(parse_size("4096", 0), 4096u);
  EXPECT_EQ(parse_size("75%", 1000), 750u);
  EXPECT_EQ(parse_size("0", 0), 0u);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* bad :
       {"", "GiB", "-1GiB", "5XiB", "nan", "inf", "1e30GiB", "101%", "5 GiB", "0x10"}) {
    EXPECT_EQ(parse_size(bad, 1000), std::nullopt) << bad;
  }
}

TEST(Units, FormatsThreeDigits) {
  EXPECT_EQ(format_size(17), "17 B");
  EXPECT_EQ(format_size(5 * MiB), "5.00 MiB");
  EXPECT_EQ(format_size(512 * MiB), "512 MiB");
  EXPECT_EQ(format_size(1023 * MiB), "1.00 GiB");
}

}  // namespace
}  // namespace sluice
