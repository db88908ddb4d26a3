// Matrices that several files have parts of: read as if one file had them.
#include "io/joined_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoint/index.h"
#include "io/checkpoint/read_tensors.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

using test::TempDir;
using testing::HasSubstr;

// Parts of 3, 8 and 5 bytes of each row, and rows that lie in one part only; and what they join to.
struct Joined {
  explicit Joined(const TempDir& dir) {
    constexpr uint64_t kWidths[] = {3, 8, 5}, kRows = 1500, kBegin = 64, kAlone = 4000;
    test::Random random(7);
    whole = random_bytes(random, kBegin + kRows * 16);
    JoinedFile file;
    JoinedFile::Band beside{.begin = kBegin, .rows = kRows, .strips = {}};
    uint64_t column = kBegin;
    for (uint32_t part = 0; part < 3; ++part) {
      std::string bytes = random_bytes(random, 100 + part);
      beside.strips.push_back({part, bytes.size(), kWidths[part]});
      for (uint64_t row = 0; row < kRows; ++row)
        bytes += whole.substr(column + row * 16, kWidths[part]);
      column += kWidths[part];
      const std::string below = random_bytes(random, kAlone);
      file.bands.push_back({0, kAlone / 10, {{part, bytes.size(), 10}}});
      whole += below;
      file.parts.push_back(make_file(dir / std::to_string(part), bytes + below));
    }
    uint64_t begin = beside.end();
    for (JoinedFile::Band& band : file.bands) {
      band.begin = begin;
      begin = band.end();
    }
    file.bands.insert(file.bands.begin(), beside);
    described = joined_file("joined", std::move(file));
  }
  std::string whole;
  CheckpointFile described;
};

TEST(JoinedFile, GivesAnyBytesOfTheWhole) {
  TempDir dir;
  const Joined joined(dir);
  ASSERT_EQ(joined.described.size, joined.whole.size());
  constexpr uint64_t kSlot = 64 * 1024;
  Staging staging(2 * kSlot);
  const auto reader = open_reader(std::span(&joined.described, 1), staging.span(),
                                  {.slot_bytes = kSlot, .chunk_bytes = kSlot});
  const OpenBytes open(joined.described);
  test::Random random(3);
  for (int i = 0; i < 200; ++i) {
    const uint64_t offset = 64 + random.engine()() % (joined.whole.size() - 64);
    const uint64_t length =
        1 + random.engine()() % std::min(joined.whole.size() - offset, reader->max_read());
    reader->submit({.offset = offset, .length = length});
    const ReadResult result = reader->wait();
    const std::string expected = joined.whole.substr(offset, length);
    ASSERT_EQ(std::string(reinterpret_cast<const char*>(result.bytes.data()), length), expected);
    reader->release(result);
    std::string bytes(length, '\0');
    open.read(offset, bytes);
    ASSERT_EQ(bytes, expected);
  }
}

TEST(JoinedFile, APartThatBecameShorterIsNamed) {
  TempDir dir;
  const Joined joined(dir);
  Staging staging(64 * 1024);
  const auto reader = open_reader(std::span(&joined.described, 1), staging.span(),
                                  {.slot_bytes = 64 * 1024, .chunk_bytes = 64 * 1024});
  std::filesystem::resize_file(dir / "1", 2000);
  reader->submit({.offset = 64, .length = 20000});
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { reader->wait(); }),
              testing::AllOf(HasSubstr("/1: changed"), HasSubstr("ends at offset 2000")));
}

// A file with wq and w2 (columns) of a model 4 wide, and its norm.
std::string part(int wq_rows, int w2_cols) {
  const int wq = 4 * wq_rows * 2, w2 = 4 * w2_cols * 2;
  return safetensors(
      fmt::format(
          R"({{"layers.0.attention.wq.weight":{{"dtype":"BF16","shape":[{},4],"data_offsets":[0,{}]}},
"layers.0.feed_forward.w2.weight":{{"dtype":"BF16","shape":[4,{}],"data_offsets":[{},{}]}},
"norm.weight":{{"dtype":"BF16","shape":[4],"data_offsets":[{},{}]}}}})",
          wq_rows, wq, w2_cols, wq, wq + w2, wq + w2, wq + w2 + 8),
      std::string(static_cast<size_t>(wq + w2 + 8), 'x'));
}

std::string refusal(const TempDir& dir) {
  return error_of(ErrorKind::refused, [&] { open_checkpoint(dir.path()); });
}

TEST(JoinedFile, JoinsWhatMetaCuts) {
  TempDir dir;
  test::write_file(dir / "consolidated.00.safetensors", part(2, 4));
  test::write_file(dir / "consolidated.01.safetensors", part(3, 5));
  const CheckpointIndex index = open_checkpoint(dir.path());
  EXPECT_EQ(index.files().size(), 3u);
  EXPECT_EQ(index.find("layers.0.attention.wq.weight")->shape, (Shape{5, 4}));
  EXPECT_EQ(index.find("layers.0.feed_forward.w2.weight")->shape, (Shape{4, 9}));
  EXPECT_EQ(index.find("norm.weight")->shape, Shape{4});
}

TEST(JoinedFile, RefusesPartsThatDoNotFit) {
  TempDir dir;
  test::write_file(dir / "consolidated.00.safetensors", part(2, 4));
  test::write_file(dir / "consolidated.02.safetensors", part(2, 4));
  EXPECT_THAT(refusal(dir), HasSubstr("consolidated.01.safetensors: is not there, but"));
  test::write_file(
      dir / "consolidated.01.safetensors",
      safetensors(R"({"norm.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})",
                  "12345678"));
  EXPECT_THAT(refusal(dir), HasSubstr("is in 2 of the 3 files"));
  std::filesystem::remove(dir / "consolidated.02.safetensors");
  test::write_file(
      dir / "consolidated.01.safetensors",
      safetensors(
          R"({"layers.0.attention.wq.weight":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]},
"layers.0.feed_forward.w2.weight":{"dtype":"BF16","shape":[4,1],"data_offsets":[6,14]},
"norm.weight":{"dtype":"BF16","shape":[4],"data_offsets":[14,22]}})",
          std::string(22, 'x')));
  EXPECT_THAT(refusal(dir), HasSubstr("BF16 [1, 3] does not fit the part in consolidated.00"));
}

}  // namespace
}  // namespace sluice::io
