#include "io/checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "io/checkpoint/safetensors.h"
#include "io/lanes_output.h"
#include "io/reader.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

size_t files_in(const fs::path& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

struct Written {
  TensorToWrite tensor;
  std::string bytes;
};

// Writes through a block that is small, and not where O_DIRECT wants it.
void write_all(const fs::path& path, const std::vector<Written>& tensors = {}) {
  std::vector<std::byte> block(100);
  SafetensorsWriter writer(path, tensors.size(), [&](size_t i) { return tensors[i].tensor; }, block,
                           {});
  for (const Written& t : tensors) writer.write(bytes_of(t.bytes));
  writer.finish();
}

TEST(SafetensorsWriter, RoundTripsRandomTensors) {
  TempDir dir;
  test::Random random("writer");
  constexpr std::array<DType, 5> kTypes{DType::f32, DType::bf16, DType::u8, DType::i64,
                                        DType::f8_e4m3};
  for (int round = 0; round < 10; ++round) {
    std::vector<Written> tensors;
    int64_t count = random.between(0, 12);
    for (int64_t i = 0; i < count; ++i) {
      DType dtype = kTypes[static_cast<size_t>(random.between(0, 4))];
      Shape shape;
      for (int64_t dims = random.between(0, 4); dims > 0; --dims) {
        shape.push_back(random.between(0, 6));
      }
      tensors.push_back({{fmt::format("t.{} \"\xc3\xa9\" {}", i, round), dtype, shape},
                         random_bytes(random, *shape.elements() * dtype_bytes(dtype))});
    }
    std::ranges::stable_sort(tensors, std::greater<>(),
                             [](const Written& t) { return dtype_bytes(t.tensor.dtype); });
    write_all(dir / "out", tensors);

    std::string file = test::read_file(dir / "out");
    TensorFile read = read_safetensors_header(dir / "out", "out");
    CheckpointIndex index({read.file}, read.tensors, {});
    ASSERT_EQ(index.tensors().size(), tensors.size());
    for (const auto& [tensor, bytes] : tensors) {
      const StoredTensor* t = index.find(tensor.name);
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(t->dtype, tensor.dtype);
      EXPECT_EQ(t->shape, tensor.shape);
      EXPECT_EQ(file.substr(t->offset, t->bytes), bytes);
      EXPECT_EQ(t->offset % static_cast<uint64_t>(dtype_bytes(t->dtype)), 0u);
    }
  }
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(SafetensorsWriter, NamesFileAndReason) {
  TempDir dir;
  std::string message = error_of(ErrorKind::runtime, [&] { write_all(dir / "absent/out"); });
  EXPECT_THAT(message, HasSubstr("absent/out"));
  EXPECT_THAT(message, HasSubstr("No such file"));
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { write_all(dir.path()); }), HasSubstr("directory"));
}

TEST(SafetensorsWriter, AFullDiskLeavesWhatWasThere) {
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { write_all("/dev/full"); }),
              HasSubstr("No space left"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  TempDir dir;
  test::write_file(dir / "out", "before");
  const std::vector<Written> tensors{{{"t", DType::u8, Shape{100'000}}, std::string(100'000, 'x')}};
  // A limit on the size of files stands in for the disk.
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 50'000;
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message = error_of(ErrorKind::runtime, [&] { write_all(dir / "out", tensors); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_EQ(test::read_file(dir / "out"), "before");
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(SafetensorsWriter, KeepsALink) {
  TempDir dir;
  test::write_file(dir / "real", "before");
  fs::create_symlink("real", dir / "link");
  write_all(dir / "link");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(read_safetensors_header(dir / "real", "real").tensors.size(), 0u);
}

TEST(SafetensorsWriter, TheSecondWriterOfAFileIsRefused) {
  TempDir dir;
  std::vector<std::byte> block(100);
  auto none = [](size_t) { return TensorToWrite(); };
  {
    SafetensorsWriter first(dir / "out", 0, none, block, {});
    EXPECT_THAT(error_of(ErrorKind::refused, [&] { write_all(dir / "out"); }),
                HasSubstr("another process"));
    first.finish();
  }
  write_all(dir / "out");
  EXPECT_EQ(files_in(dir.path()), 1u);
}

// Codes and scales come in turn, and lie apart in the file.
TEST(SafetensorsLayout, LanesAreWrittenInTurn) {
  TempDir dir;
  const std::vector<TensorToWrite> tensors{
      {"a", DType::u8, {3, 1000}}, {"a_scale", DType::f32, {3, 1}}, {"b", DType::bf16, {7}},
      {"c", DType::u8, {2, 1000}}, {"c_scale", DType::u8, {2, 4}},  {"none", DType::f32, {0}}};
  const std::vector<int> numbers{0, 1, 0, 0, 1, 0};
  const SafetensorsLayout layout = lay_out_safetensors(tensors, numbers);
  std::vector<OutputLane> lanes{{0, layout.header.size()}};
  for (const auto& lane : layout.lanes) lanes.push_back({lane.begin, lane.end});
  Staging staging(lanes.size() * kDirectAlignment);
  const std::span<std::byte> memory = staging.span();
  test::Random random("lanes");
  std::vector<std::string> contents;
  for (const TensorToWrite& t : tensors)
    contents.push_back(random_bytes(random, static_cast<int64_t>(*stored_bytes(t.dtype, t.shape))));
  LanesOutput out(dir / "out", lanes, memory);
  out.write(0, bytes_of(layout.header));
  for (size_t i = 0; i < tensors.size(); ++i)
    out.write(1 + layout.find(tensors[i].dtype, numbers[i]), bytes_of(contents[i]));
  EXPECT_FALSE(fs::exists(dir / "out"));
  const std::string checksum = out.finish();
  const TensorFile file = read_safetensors_header(dir / "out", "out");
  ASSERT_EQ(file.tensors.size(), tensors.size());
  const std::string all = test::read_file(dir / "out");
  for (const StoredTensor& t : file.tensors) {
    const auto at = std::ranges::find(tensors, t.name, &TensorToWrite::name) - tensors.begin();
    EXPECT_EQ(t.offset % static_cast<uint64_t>(dtype_bytes(t.dtype)), 0u) << t.name;
    EXPECT_EQ(all.substr(t.offset, t.bytes), contents[static_cast<size_t>(at)]) << t.name;
  }
  EXPECT_EQ(lanes_checksum(dir / "out", lanes, memory, {}), checksum);
  test::write_file(dir / "out", all.substr(0, all.size() - 1) + static_cast<char>(all.back() ^ 1));
  EXPECT_NE(lanes_checksum(dir / "out", lanes, memory, {}), checksum);
}

}  // namespace
}  // namespace sluice::io
