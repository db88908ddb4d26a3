#include "src/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/base/error.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(Units, ParsesWhatUsersWrite) {
  EXPECT_EQ(parse_size("--x", "6GiB"), 6 * GiB);
  EXPECT_EQ(parse_size("--x", "512MiB"), 512 * MiB);
  EXPECT_EQ(parse_size("--x", "1.5GB"), 1'500'000'000u);
  for (const char* text : {"8G", "8g", "8GiB", "8gib", "8Gi"})
    EXPECT_EQ(parse_size("--x", text), 8 * GiB) << text;
  EXPECT_EQ(parse_size("--x", "8gb"), 8'000'000'000u);
  EXPECT_EQ(parse_size("--x", "512m"), 512 * MiB);
  EXPECT_EQ(parse_size("--x", "4096"), 4096u);
  EXPECT_EQ(parse_size("--x", "75%", 1000), 750u);
  EXPECT_EQ(parse_size("--x", "0"), 0u);
  EXPECT_EQ(parse_size("--x", "1PiB"), 1024 * 1024 * GiB);
  EXPECT_EQ(parse_size("--x", "1EiB"), uint64_t{1} << 60);
}

TEST(Units, SaysWhetherASizeIsNoneOrOutOfRange) {
  auto fault = [](const char* text, std::optional<uint64_t> whole) -> std::string {
    try {
      return std::to_string(parse_size("--x", text, whole));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return e.what();
    }
  };
  for (const char* text :
       {"", "GiB", "5XiB", "5Gbit", "5ii", "nan", "inf", "5 GiB", "0x10", "%", "1e999x"})
    EXPECT_THAT(fault(text, 1000), HasSubstr("not a size")) << text;
  for (const char* text : {"-1GiB", "1e30GiB", "1e999", "9223372036854775807", "2EiB"})
    EXPECT_THAT(fault(text, 1000), HasSubstr("from 0 to 1EiB")) << text;
  for (const char* text : {"101%", "-1%"})
    EXPECT_THAT(fault(text, 1000), HasSubstr("from 0% to 100%")) << text;
  EXPECT_THAT(fault("50%", std::nullopt), HasSubstr("not a size"));  // of nothing
}

TEST(Units, ANeedReadsAsMoreThanWhatItExceeds) {
  EXPECT_EQ(format_need(38 * MiB, 38 * MiB), "38.0 MiB");
  EXPECT_EQ(format_need(38 * MiB + 1, 38 * MiB), "38.1 MiB");
  EXPECT_EQ(format_need(40 * MiB + 1, 38 * MiB), "40.0 MiB");
  EXPECT_EQ(format_need(500 * MiB + 1, 500 * MiB), "501 MiB");
}

TEST(Units, FormatsThreeDigits) {
  EXPECT_EQ(format_size(17), "17 B");
  EXPECT_EQ(format_size(5 * MiB), "5.00 MiB");
  EXPECT_EQ(format_size(512 * MiB), "512 MiB");
  EXPECT_EQ(format_size(1023 * MiB), "1.00 GiB");
}

}  // namespace
}  // namespace sluice
