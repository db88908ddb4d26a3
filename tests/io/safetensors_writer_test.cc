#include "io/checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "io/checkpoint/safetensors.h"
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

TEST(SafetensorsWriter, RoundTripsRandomTensors) {
  TempDir dir;
  test::Random random("writer");
  constexpr std::array<DType, 5> kTypes{DType::f32, DType::bf16, DType::u8, DType::i64,
                                        DType::f8_e4m3};
  for (int round = 0; round < 10; ++round) {
    std::vector<std::string> data;
    std::vector<TensorToWrite> tensors;
    int64_t count = random.between(0, 12);
    for (int64_t i = 0; i < count; ++i) {
      DType dtype = kTypes[static_cast<size_t>(random.between(0, 4))];
      Shape shape;
      for (int64_t dims = random.between(0, 4); dims > 0; --dims) {
        shape.push_back(random.between(0, 6));
      }
      data.push_back(random_bytes(random, *shape.elements() * dtype_bytes(dtype)));
      tensors.push_back({fmt::format("t.{} \"\xc3\xa9\" {}", i, round), dtype, shape, {}});
    }
    for (size_t i = 0; i < data.size(); ++i) tensors[i].bytes = bytes_of(data[i]);
    write_safetensors(dir / "out", tensors);

    std::string file = test::read_file(dir / "out");
    SafetensorsFile read = read_safetensors_header(dir / "out", "out");
    CheckpointIndex index({read.file}, read.tensors, {});
    ASSERT_EQ(index.tensors().size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const StoredTensor* t = index.find(tensors[i].name);
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(t->dtype, tensors[i].dtype);
      EXPECT_EQ(t->shape, tensors[i].shape);
      EXPECT_EQ(file.substr(t->offset, t->bytes), data[i]);
      EXPECT_EQ(t->offset % static_cast<uint64_t>(dtype_bytes(t->dtype)), 0u);
    }
  }
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(SafetensorsWriter, NamesFileAndReason) {
  TempDir dir;
  std::string message =
      error_of(ErrorKind::runtime, [&] { write_safetensors(dir / "absent/out", {}); });
  EXPECT_THAT(message, HasSubstr("absent/out"));
  EXPECT_THAT(message, HasSubstr("No such file"));
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { write_safetensors(dir.path(), {}); }),
              HasSubstr("directory"));
}

TEST(SafetensorsWriter, AFullDiskLeavesWhatWasThere) {
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { write_safetensors("/dev/full", {}); }),
              HasSubstr("No space left"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  TempDir dir;
  test::write_file(dir / "out", "before");
  std::string data(100'000, 'x');
  TensorToWrite tensor{"t", DType::u8, Shape{100'000}, bytes_of(data)};
  // A limit on the size of files stands in for the disk.
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 50'000;
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message =
      error_of(ErrorKind::runtime, [&] { write_safetensors(dir / "out", std::span(&tensor, 1)); });
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
  write_safetensors(dir / "link", {});
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(read_safetensors_header(dir / "real", "real").tensors.size(), 0u);
}

}  // namespace
}  // namespace sluice::io
