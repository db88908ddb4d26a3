// GGUF files are untrusted: counts, lengths, offsets and types are checked before use.
#include "io/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/support.h"
#include "tests/support/gguf.h"

namespace sluice::io {
namespace {

using test::bytes_of;
using test::GgufBuilder;
using test::TempDir;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0, kQ8 = 8, kQ4K = 12;

GgufBuilder sound(uint64_t alignment = 32) {
  GgufBuilder b;
  b.alignment = alignment;
  b.string("general.architecture", "llama")
      .number("x.u8", uint8_t{200})
      .number("x.i8", int8_t{-3})
      .number("x.u16", uint16_t{65535})
      .number("x.i16", int16_t{-32768})
      .number("x.u32", uint32_t{7})
      .number("x.i32", int32_t{-5})
      .number("x.u64", uint64_t{1} << 63)
      .number("x.i64", int64_t{-1} << 40)
      .number("x.f32", 0.5f)
      .number("x.f64", 1e300)
      .number("x.yes", true)
      .strings("x.strings", {"", "a\xC3\xA9", std::string(70000, 'x')})
      .numbers<int32_t>("x.numbers", {1, -2, 3})
      .numbers<double>("x.empty", {})
      .tensor("a", {3, 2}, kF32, std::string(24, 'a'))
      .tensor("b", {256, 3}, kQ4K, std::string(3 * 144, 'b'));
  return b;
}

std::string refusal(const TempDir& dir, const std::string& bytes) {
  write_file(dir / "f.gguf", bytes);
  return error_of(ErrorKind::refused, [&] { open_gguf(dir / "f.gguf"); });
}

TEST(Gguf, MetadataOfEveryTypeAndTensors) {
  TempDir dir;
  GgufBuilder b = sound(64);
  b.number("general.alignment", uint32_t{64}).tensor("c", {4}, kF32, std::string(16, 'c'));
  write_file(dir / "f.gguf", b.build());
  const GgufCheckpoint all = open_gguf(dir / "f.gguf");
  const Json& values = all.header.values;
  EXPECT_EQ(values["x.u8"], 200);
  EXPECT_EQ(values["x.i8"], -3);
  EXPECT_EQ(values["x.u16"], 65535);
  EXPECT_EQ(values["x.i16"], -32768);
  EXPECT_EQ(values["x.u64"], uint64_t{1} << 63);
  EXPECT_EQ(values["x.i64"], int64_t{-1} << 40);
  EXPECT_EQ(values["x.f32"], 0.5);
  EXPECT_EQ(values["x.f64"], 1e300);
  EXPECT_EQ(values["x.yes"], true);
  EXPECT_EQ(values["general.architecture"], "llama");
  std::vector<std::string> strings;
  each_gguf_string(all.header, "x.strings", [&](std::string_view s) { strings.emplace_back(s); });
  EXPECT_THAT(strings, ElementsAre("", "a\xC3\xA9", std::string(70000, 'x')));
  EXPECT_THAT(read_gguf_numbers(all.header, "x.numbers"), ElementsAre(1, -2, 3));
  EXPECT_THAT(read_gguf_numbers(all.header, "x.empty"), ElementsAre());
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { read_gguf_numbers(all.header, "x.strings"); }),
              HasSubstr("x.strings must be an array of numbers"));

  const std::string file = b.build();
  ASSERT_EQ(all.tensors.size(), 3u);
  EXPECT_EQ(all.tensors[0].shape, Shape({2, 3}));
  EXPECT_EQ(all.tensors[1].dtype, DType::q4_k);
  EXPECT_EQ(all.tensors[1].shape, Shape({3, 256}));
  for (const StoredTensor& t : all.tensors) {
    EXPECT_EQ(t.offset % 64, 0u);
    EXPECT_EQ(file.substr(t.offset, t.bytes), std::string(t.bytes, t.name.front()));
  }
}

struct Hostile {
  const char* fault;
  GgufBuilder file;
};

std::vector<Hostile> hostile_files() {
  using enum GgufType;
  const auto tensor = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    return sound().tensor_at("t.x", dims, type, offset);
  };
  const std::string beyond = bytes_of<uint64_t>(1 << 30), wraps = bytes_of(UINT64_MAX);
  std::vector<Hostile> all{
      {"x.u8 is there twice", sound().number("x.u8", 1.0f)},
      {"x.numbers is there twice", sound().number("x.numbers", 1.0f)},
      {"key y: has unknown type 77", sound().raw("y", static_cast<GgufType>(77), "")},
      {"key y: has unknown type 13", sound().array("y", static_cast<GgufType>(13), 1, "")},
      {"arrays in arrays", sound().array("y", array, 1, bytes_of<uint32_t>(0) + wraps)},
      {"more than the file could hold", sound().array("y", u8, UINT64_MAX, "")},
      {"more than the file could hold", sound().array("y", f64, UINT64_MAX / 8 + 2, "")},
      {"more than the file could hold", sound().array("y", string, UINT64_MAX, "")},
      {"bytes long, but the file has", sound().array("y", string, 2, wraps + beyond)},
      {"bytes long, but the file has", sound().raw("y", string, beyond)},
      {"bytes long, but the file has", sound().raw("y", string, wraps)},
      {"must be a power of two", sound().number("general.alignment", uint32_t{0})},
      {"must be a power of two", sound().number("general.alignment", uint32_t{48})},
      {"general.alignment must be", sound().string("general.alignment", "32")},
      {"general.alignment is -32, but", sound().number("general.alignment", int64_t{-32})},
      {"t.x: has 0 dimensions", tensor({}, kF32, 0)},
      {"t.x: has 5 dimensions", tensor({1, 1, 1, 1, 1}, kF32, 0)},
      {"t.x: has a dimension of 0", tensor({4, 0}, kF32, 480)},
      {"t.x: has a dimension of", tensor({UINT64_MAX}, kF32, 480)},
      {"overflows 64 bits", tensor({uint64_t{1} << 40, uint64_t{1} << 40}, kF32, 480)},
      {"t.x: has unknown type 9", tensor({4}, 9, 480)},
      {"t.x: has unknown type 4294967295", tensor({4}, UINT32_MAX, 480)},
      {"not a whole number of blocks: Q8_0", tensor({33, 4}, kQ8, 480)},
      {"which is not a multiple of the alignment 32", tensor({4}, kF32, 481)},
      {"t.x: lies beyond the end", tensor({1 << 20}, kF32, 480)},
      {"t.x: lies beyond the end", tensor({4}, kF32, UINT64_MAX - 31)},
      {"t.x: its data overlap those of b", tensor({4}, kF32, 64)},
      {"tensor a: the name is there twice", sound().tensor_at("a", {4}, kF32, 480)},
      {"contains a control character", sound().tensor_at("a\nb", {4}, kF32, 480)},
      {"split.count", sound().number("split.count", uint16_t{3}).number("split.no", uint16_t{7})},
  };
  for (auto [version, fault] :
       {std::pair(0u, "of version 0"), std::pair(1u, "of version 1"),
        std::pair(99u, "of version 99"), std::pair(0x03000000u, "big-endian")}) {
    all.push_back({fault, sound()});
    all.back().file.version = version;
  }
  all.push_back({"tensors, more than it could hold", sound()});
  all.back().file.more_tensors = uint64_t{1} << 62;
  all.push_back({"keys of metadata, more than it could hold", sound()});
  all.back().file.more_keys = UINT64_MAX - 100;
  return all;
}

TEST(Gguf, RefusesHostileFiles) {
  TempDir dir;
  for (const Hostile& h : hostile_files())
    EXPECT_THAT(refusal(dir, h.file.build()), AllOf(HasSubstr("f.gguf"), HasSubstr(h.fault)));
  EXPECT_THAT(refusal(dir, ""), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(dir, "GGUX1234567890123456789012345678"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(dir, GgufBuilder().build()), HasSubstr("holds no tensors"));
}

TEST(Gguf, EveryTruncationIsRefused) {
  TempDir dir;
  GgufBuilder b;
  b.string("a", "bc").strings("d", {"e", "f"}).numbers<int16_t>("g", {1, 2}).number("h", 1.5);
  b.tensor("t", {3, 2}, kF32, std::string(24, 't'));
  const std::string whole = b.build();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message = refusal(dir, whole.substr(0, size));
    EXPECT_FALSE(message.empty()) << size;
  }
}

// Two files, one tensor each.
GgufBuilder part(int no, const char* tensor, int count = 2, int tensors = 2) {
  GgufBuilder b;
  b.number("split.no", static_cast<uint16_t>(no))
      .number("split.count", static_cast<uint16_t>(count));
  b.number("split.tensors.count", int32_t{tensors})
      .tensor(tensor, {4}, kF32, std::string(16, *tensor));
  if (no == 0) b.string("general.architecture", "llama");
  return b;
}
constexpr const char *kFirst = "m-00001-of-00002.gguf", *kSecond = "m-00002-of-00002.gguf";

TEST(Gguf, AnyPartNamesTheWhole) {
  TempDir dir, mirror;
  write_file(dir / kFirst, part(0, "a").build());
  write_file(dir / kSecond, part(1, "b").build());
  for (const char* name : {kFirst, kSecond}) {
    const GgufCheckpoint all = open_gguf(dir / name);
    ASSERT_EQ(all.files.size(), 2u);
    EXPECT_EQ(all.files[0].name, kFirst);
    EXPECT_EQ(all.header.values["general.architecture"], "llama");
    ASSERT_EQ(all.tensors.size(), 2u);
    EXPECT_EQ(all.tensors[0].name, "a");
    EXPECT_EQ(all.tensors[1].name, "b");
    EXPECT_EQ(all.tensors[1].file, 1u);
  }
  std::filesystem::rename(dir / kSecond, mirror / kSecond);
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { open_gguf(dir / kFirst); }),
              AllOf(HasSubstr(kSecond), HasSubstr("1 of the model's 2 files are missing")));
  const std::vector<std::filesystem::path> mirrors{mirror.path()};
  EXPECT_EQ(open_gguf(dir / kFirst, mirrors).files[1].path.parent_path(),
            std::filesystem::canonical(mirror.path()));
  std::filesystem::copy_file(dir / kFirst, mirror / kFirst);
  EXPECT_EQ(open_gguf(dir / kFirst, mirrors).copies.size(), 1u);
  write_file(mirror / kFirst, part(0, "x").build());
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { open_gguf(dir / kFirst, mirrors); }),
              HasSubstr("is not a copy"));
}

// gguf-py writes the alignment into the first part alone.
TEST(Gguf, PartsAreAlignedAsTheFirstOne) {
  for (uint64_t alignment : {8, 64, 4096}) {
    TempDir dir;
    GgufBuilder first = part(0, "a"), second = part(1, "b");
    first.number<uint32_t>("general.alignment", static_cast<uint32_t>(alignment));
    for (GgufBuilder* b : {&first, &second}) b->alignment = alignment;
    const std::string whole = second.build();
    write_file(dir / kFirst, first.build());
    for (uint64_t padding : {uint64_t{0}, alignment - 16 % alignment}) {
      write_file(dir / kSecond, whole + std::string(padding % alignment, '\0'));
      const GgufCheckpoint all = open_gguf(dir / kFirst);
      ASSERT_EQ(all.tensors.size(), 2u);
      EXPECT_EQ(all.tensors[1].offset, whole.size() - 16);
    }
  }
}

TEST(Gguf, PartsMustBelongTogether) {
  TempDir dir;
  const auto fault = [&](const GgufBuilder& first, const GgufBuilder& second) {
    write_file(dir / kFirst, first.build());
    write_file(dir / kSecond, second.build());
    return error_of(ErrorKind::refused, [&] { open_gguf(dir / kSecond); });
  };
  EXPECT_THAT(fault(part(0, "a"), part(0, "b")), HasSubstr("by its name it is file 2 of 2"));
  EXPECT_THAT(fault(part(0, "a", 3), part(1, "b", 3)), HasSubstr("by its name it is file 1 of 2"));
  EXPECT_THAT(fault(part(0, "a", 2, 5), part(1, "b")), HasSubstr("split.tensors.count is 5"));
}

}  // namespace
}  // namespace sluice::io
