#include "io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/io/support.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::HasSubstr;

TEST(ReadSmallFile, ReadsAndBounds) {
  TempDir dir;
  test::Random random("small file");
  std::string text = random_bytes(random, random.between(0, 20'000));
  test::write_file(dir / "a", text);
  EXPECT_EQ(read_small_file(dir / "a", text.size()), text);
  test::write_file(dir / "b", text + "x");
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { read_small_file(dir / "b", text.size()); }),
              HasSubstr("more than the"));
}

TEST(ReadSmallFile, RefusesWhatIsNoRegularFile) {
  TempDir dir;
  auto refusal = [&](const fs::path& path) {
    return error_of(ErrorKind::refused, [&] { read_small_file(path, 1000); });
  };
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal(dir / "fifo"), HasSubstr("FIFO"));
  EXPECT_THAT(refusal(dir.path()), HasSubstr("is a directory"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("is a device"));
  EXPECT_THAT(refusal(dir / "absent"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(dir / "absent"), HasSubstr((dir / "absent").string()));
  EXPECT_THAT(refusal(dir / "fifo/below"), HasSubstr("Not a directory"));
  EXPECT_THAT(refusal(dir / std::string(5000, 'n')), HasSubstr("too long"));
}

TEST(ReadSmallFile, RefusesWhatMayNotBeRead) {
  TempDir dir;
  fs::permissions(dir.path(), fs::perms::all);
  test::write_file(dir / "a", "x");
  fs::permissions(dir / "a", fs::perms::none);
  Unprivileged scope;
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { read_small_file(dir / "a", 10); }),
              HasSubstr("Permission denied"));
}

TEST(ReadSmallFile, LeavesNoPageCacheBehind) {
  TempDir dir;
  test::Random random("small file cache");
  test::write_file(dir / "a", random_bytes(random, 300'001));
  push_to_disk(dir / "a");
  if (cached_pages(dir / "a") != 0u) GTEST_SKIP() << "this file system's pages cannot be dropped";
  read_small_file(dir / "a", 1'000'000);
  EXPECT_EQ(cached_pages(dir / "a"), 0u);
}

TEST(Printable, IsSafeAndShort) {
  EXPECT_EQ(printable("a.b c"), "a.b c");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x1b[2J\x7f", 9)), "a?b??[2J?");
  EXPECT_EQ(printable("\xc3\xa9"), "\xc3\xa9");
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "\xe2\x82\xac";  // 3 bytes each
  std::string shown = printable(long_text);
  EXPECT_LT(shown.size(), 262u);
  EXPECT_EQ((shown.size() - 3) % 3, 0u) << "cut inside a character";
}

}  // namespace
}  // namespace sluice::io
