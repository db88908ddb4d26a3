// Files in pieces: lines, and what can be read only once.
#include "io/lines.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice::io {
namespace {

struct Seen {
  uint64_t offset, length, number;
  std::string text;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> lines_of(const std::filesystem::path& path, uint64_t most) {
  const InputFile file(path, {}, {});
  LineReader reader(file, most);
  std::vector<Seen> seen;
  while (auto line = reader.next())
    seen.push_back({line->offset, line->length, line->number, std::string(line->text)});
  return seen;
}

TEST(LineReader, BlankLinesAreCountedAndLongOnesPassedOver) {
  test::TempDir dir;
  test::write_file(dir / "file", "a\n\n \t\r\nlonger\nb");
  EXPECT_EQ(lines_of(dir / "file", 3),
            (std::vector<Seen>{{0, 1, 1, "a"}, {7, 6, 4, ""}, {14, 1, 5, "b"}}));
  test::write_file(dir / "file", "");
  EXPECT_TRUE(lines_of(dir / "file", 3).empty());
}

TEST(LineReader, LinesMayBeginAndEndAnywhereInABuffer) {
  test::TempDir dir;
  test::Random random("lines");
  std::string text;
  std::vector<Seen> want;
  constexpr int64_t kMost = 100'000;
  for (uint64_t number = 1; number <= 60; ++number) {
    // Around the buffer's size, its half, and the longest line.
    int64_t around = std::array{1, 1 << 15, 1 << 16, 100'000}[random.between(0, 3)];
    auto length = static_cast<size_t>(std::max<int64_t>(around + random.between(-2, 2), 1));
    std::string line(length, static_cast<char>('a' + number % 26));
    want.push_back({text.size(), length, number, length > kMost ? "" : line});
    text += line + "\n";
  }
  test::write_file(dir / "file", text);
  EXPECT_TRUE(lines_of(dir / "file", kMost) == want);
}

TEST(InputFile, AFileThatHasBecomeShorterIsAnError) {
  test::TempDir dir;
  test::write_file(dir / "file", "0123456789");
  const InputFile file(dir / "file", {}, {});
  std::string part(4, '\0');
  file.read(6, part);
  EXPECT_EQ(part, "6789");
  std::filesystem::resize_file(dir / "file", 8);
  EXPECT_THROW(file.read(6, part), Error);
}

}  // namespace
}  // namespace sluice::io
