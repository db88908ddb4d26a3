#include "io/checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/support.h"

namespace sluice::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CheckpointFile file(const std::string& name, uint64_t size) {
  CheckpointFile f;
  f.name = name;
  f.path = std::filesystem::path("/m") / name;
  f.size = size;
  return f;
}

StoredTensor tensor(std::string name, uint32_t in_file, uint64_t offset, int64_t elements) {
  return {std::move(name), DType::f32, Shape{elements},
          in_file,         offset,     static_cast<uint64_t>(elements) * 4};
}

TEST(CheckpointIndex, FindsEveryTensorAndSortsByDisk) {
  test::Random random("index");
  std::vector<StoredTensor> tensors;
  int64_t count = random.between(1, 300);
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back(tensor(fmt::format("t{}", i), static_cast<uint32_t>(random.between(0, 2)),
                             static_cast<uint64_t>(random.between(0, 900)), random.between(0, 20)));
  }
  CheckpointIndex index({file("a", 1000), file("b", 1000), file("c", 1000)}, tensors, {});
  uint64_t total = 0;
  for (const StoredTensor& t : tensors) {
    const StoredTensor* found = index.find(t.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->offset, t.offset);
    EXPECT_EQ(found->file, t.file);
    total += t.bytes;
  }
  EXPECT_EQ(index.total_bytes(), total);
  for (std::string absent : {"", "t", "t0 ", "t999"}) EXPECT_EQ(index.find(absent), nullptr);
  for (size_t i = 1; i < index.tensors().size(); ++i) {
    const StoredTensor& a = index.tensors()[i - 1];
    const StoredTensor& b = index.tensors()[i];
    EXPECT_LE(std::pair(a.file, a.offset), std::pair(b.file, b.offset));
  }
  CheckpointIndex copy = index;
  EXPECT_EQ(copy.find("t0")->offset, index.find("t0")->offset);
}

TEST(CheckpointIndex, RefusesWhatNoFormatMayHold) {
  auto refusal = [](StoredTensor t) {
    return error_of(ErrorKind::refused, [&] { CheckpointIndex({file("a", 100)}, {t}, {}); });
  };
  EXPECT_THAT(refusal(tensor("x", 0, 97, 1)),
              AllOf(HasSubstr("/m/a: tensor x"), HasSubstr("beyond")));
  EXPECT_THAT(refusal(tensor("x", 0, UINT64_MAX - 1, 1)), HasSubstr("beyond"));
  EXPECT_THAT(refusal(tensor("x", 0, 101, 0)), HasSubstr("beyond"));
  EXPECT_THAT(refusal(tensor(std::string("x\0y", 3), 0, 0, 1)), HasSubstr("control character"));
  EXPECT_THAT(refusal(tensor(std::string(2000, 'x'), 0, 0, 1)), HasSubstr("2000 bytes long"));
  StoredTensor t = tensor("x", 0, 0, 4);
  t.shape = Shape{-2, -2};
  EXPECT_THAT(refusal(t), HasSubstr("negative"));
  t.shape = Shape{5};
  EXPECT_THAT(refusal(t), AllOf(HasSubstr("[5] of F32 needs 20 bytes"), HasSubstr("16")));
  t.shape = Shape{int64_t{1} << 62, 4, 1};  // 2^64 elements
  EXPECT_THAT(refusal(t), HasSubstr("overflows"));
  t.shape = Shape{int64_t{1} << 62};  // 2^64 bytes
  t.bytes = 0;
  EXPECT_THAT(refusal(t), HasSubstr("overflows"));

  EXPECT_THAT(error_of(ErrorKind::refused,
                       [] {
                         CheckpointIndex({file("a", 100), file("b", 100)},
                                         {tensor("x", 1, 0, 1), tensor("x", 0, 8, 1)}, {});
                       }),
              AllOf(HasSubstr("tensor x is there twice")));
}

}  // namespace
}  // namespace sluice::io
