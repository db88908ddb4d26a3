#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/checkpoint/index.h"
#include "tests/io/support.h"
#include "tests/support/temp.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using test::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::string refusal(const fs::path& directory) {
  return error_of(ErrorKind::refused, [&] { open_checkpoint(directory); });
}

// Refusal to somebody who needs everything that the index names.
std::string refusal_of_all(const fs::path& directory) {
  const CheckpointIndex index = open_checkpoint(directory);
  return error_of(ErrorKind::refused, [&] {
    for (const AbsentTensors& absent : index.absent()) index.refuse_absent(absent.names.front());
  });
}

std::string one_tensor(std::string_view name) {
  return safetensors(object({entry(name, 0, 4)}), "1234");
}

// Two shards "a" and "b" with tensors x and y.
void write_sharded(const fs::path& directory, std::string_view weight_map) {
  fs::create_directories(directory);
  write_file(directory / "a", one_tensor("x"));
  write_file(directory / "b", one_tensor("y"));
  write_file(directory / kIndex, fmt::format(R"({{"weight_map":{}}})", weight_map));
}

// Files written by safetensors 0.8.0 and transformers 5.23.0.
TEST(OpenCheckpoint, ReadsShardsOfTheReference) {
  CheckpointIndex index = open_checkpoint(test::source_dir() / "tests/data/io/sharded");
  EXPECT_THAT(index.warnings(), IsEmpty());
  ASSERT_EQ(index.files().size(), 2u);
  EXPECT_EQ(index.files()[1].name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(index.files()[1].size, 6080u);
  EXPECT_EQ(index.tensors().size(), 21u);
  EXPECT_EQ(index.total_bytes(), 10208u);
  const StoredTensor* embedding = index.find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, DType::bf16);
  EXPECT_EQ(embedding->shape, (Shape{37, 16}));
  EXPECT_EQ(embedding->file, 0u);
  EXPECT_EQ(embedding->offset, 1120u);
  EXPECT_EQ(embedding->bytes, 1184u);
  const StoredTensor* norm = index.find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->file, 1u);
  EXPECT_EQ(norm->offset, 992u + 5056u);
}

TEST(OpenCheckpoint, PrefersTheSingleFile) {
  TempDir dir;
  write_sharded(dir.path(), R"({"x":"a"})");
  EXPECT_NE(open_checkpoint(dir.path()).find("x"), nullptr);
  write_file(dir / kSingle, one_tensor("single"));
  CheckpointIndex index = open_checkpoint(dir.path());
  EXPECT_NE(index.find("single"), nullptr);
  EXPECT_EQ(index.find("x"), nullptr);
}

// The length of a header may begin with the byte that a pickle begins with.
TEST(OpenCheckpoint, ReadsSafetensorsOfAnyNameAndHeaderLength) {
  TempDir dir;
  std::string header = object({entry("x", 0, 4)});
  for (size_t length : {0x80u, 0x280u, 0x481u}) {
    header.resize(length, ' ');
    write_file(dir / "weights.safetensors", safetensors(header, "1234"));
    const CheckpointIndex index = open_checkpoint(dir.path());
    ASSERT_EQ(index.tensors().size(), 1u);
    EXPECT_EQ(index.tensors()[0].offset, 8 + length);
  }
}

// A tensor that the index does not list is taken from the last shard that has it.
TEST(OpenCheckpoint, TheIndexDecidesWhatItLists) {
  TempDir dir;
  auto open = [&](std::string_view weight_map) {
    write_file(dir / kIndex, fmt::format(R"({{"weight_map":{}}})", weight_map));
    return open_checkpoint(dir.path());
  };
  write_file(dir / "a", safetensors(object({entry("x", 0, 4), entry("w", 4, 8)}), "12345678"));
  write_file(dir / "b", safetensors(object({entry("y", 0, 4), entry("x", 4, 8), entry("z", 8, 8)}),
                                    "12345678"));
  CheckpointIndex index = open(R"({"x":"a","w":"a","y":"b"})");
  ASSERT_NE(index.find("x"), nullptr);
  EXPECT_EQ(index.find("x")->file, 0u);
  EXPECT_TRUE(index.find("x")->listed);
  ASSERT_NE(index.find("z"), nullptr);
  EXPECT_FALSE(index.find("z")->listed);
  EXPECT_THAT(index.warnings(), ElementsAre(AllOf(HasSubstr("z is not listed, but taken"),
                                                  HasSubstr("x is in several shards"))));
  EXPECT_EQ(open(R"({"x":"b","y":"b","z":"b","w":"a"})").find("x")->file, 1u);
  EXPECT_EQ(open(R"({"y":"b","w":"a"})").find("x")->file, 1u);
  // A shard that it does not name is not read.
  EXPECT_EQ(open(R"({"x":"a"})").find("y"), nullptr);
}

TEST(OpenCheckpoint, ReadsAnIndexAsPythonDoes) {
  TempDir dir;
  write_sharded(dir.path(), "{}");
  write_file(dir / kIndex, R"({"metadata":{"loss":NaN,"total_size":Infinity},
                               "weight_map":{"x":"b"},"weight_map":{"x":"b","y":"b","x":"a"}})");
  CheckpointIndex index = open_checkpoint(dir.path());
  EXPECT_THAT(index.warnings(), IsEmpty());
  EXPECT_EQ(index.find("x")->file, 0u);
  write_file(dir / kIndex, R"({"weight_map":{"x":NaN}})");
  EXPECT_THAT(refusal(dir.path()), HasSubstr("without opening"));
}

TEST(OpenCheckpoint, FindsShardsInSubdirectories) {
  TempDir dir;
  write_sharded(dir.path(), R"({"x":"a","y":"deep/er/b"})");
  fs::create_directories(dir / "deep/er");
  fs::rename(dir / "b", dir / "deep/er/b");
  EXPECT_NE(open_checkpoint(dir.path()).find("y"), nullptr);
}

TEST(OpenCheckpoint, WarnsOfAWrongTotal) {
  TempDir dir;
  write_sharded(dir.path(), "{}");
  auto warnings = [&](std::string_view metadata) {
    write_file(dir / kIndex,
               fmt::format(R"({{"metadata":{},"weight_map":{{"x":"a","y":"b"}}}})", metadata));
    return open_checkpoint(dir.path()).warnings();
  };
  EXPECT_THAT(warnings(R"({"total_size":8})"), IsEmpty());
  EXPECT_THAT(warnings(R"({"total_size":9})"),
              ElementsAre(AllOf(HasSubstr("total_size is 9"), HasSubstr("8 bytes"))));
  EXPECT_THAT(warnings(R"({})"), IsEmpty());
  EXPECT_THAT(warnings(R"([{"total_size":9}])"), IsEmpty());
  EXPECT_THAT(warnings(R"({"total_size":-1})"), IsEmpty());  // says nothing that could be wrong
}

TEST(OpenCheckpoint, RefusesHostileIndexes) {
  TempDir dir;
  write_sharded(dir.path(), "{}");
  auto refuses = [&](std::string_view index, std::string_view fault) {
    write_file(dir / kIndex, index);
    EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr(kIndex), HasSubstr(std::string(fault))))
        << index;
  };
  refuses("", "not valid JSON");
  refuses("{", "not valid JSON");
  refuses("{} {}", "not valid JSON");
  refuses(std::string_view("{}\0", 3), "NUL");
  refuses("[]", "must be a JSON object");
  refuses("7", "must be a JSON object");
  refuses("{}", "no weight_map");
  refuses(R"({"weight_map":{}})", "weight_map is empty");
  refuses(R"({"weight_map":["a"]})", "weight_map must be an object");
  refuses(R"({"weight_map":null})", "weight_map must be an object");
  refuses(R"({"weight_map":{"x":1}})", "tensor x must be a string");
  refuses(R"({"weight_map":{"x":["a"]}})", "tensor x must be a string");
  refuses(fmt::format(R"({{"m":{})", std::string(100, '[')), "nested too deeply");
}

TEST(OpenCheckpoint, RefusesPathsOutsideWithoutOpening) {
  TempDir dir;
  write_sharded(dir / "model", "{}");
  write_file(dir / "outside", one_tensor("x"));
  for (const std::string& name : std::vector<std::string>{
           "", ".", "..", "../outside", "sub/../../outside", "./a", "a/", "a/.", "sub//a",
           "sub/../a", R"(..\\outside)", R"(a\u0000b)", R"(a\nb)", (dir / "outside").string(),
           std::string(300, 'n'), "/dev/zero", "//dev/zero"}) {
    write_file(dir / "model" / kIndex, fmt::format(R"({{"weight_map":{{"x":"{}"}}}})", name));
    EXPECT_THAT(refusal(dir / "model"), AllOf(HasSubstr(kIndex), HasSubstr("without opening")))
        << name;
  }
}

TEST(OpenCheckpoint, FollowsLinksWithinItsDirectories) {
  TempDir dir;
  write_sharded(dir / "model", R"({"x":"a","y":"b"})");
  fs::rename(dir / "model/b", dir / "model/other");
  fs::create_symlink("other", dir / "model/b");
  CheckpointIndex index = open_checkpoint(dir / "model");
  EXPECT_EQ(index.files()[1].path, fs::canonical(dir / "model/other"));
  EXPECT_EQ(index.files()[1].name, "b");

  write_file(dir / "model/other", "no tensors");
  EXPECT_THAT(refusal(dir / "model"), AllOf(HasSubstr("b (a link to"), HasSubstr("other")));
  fs::remove(dir / "model/b");
  fs::create_symlink("b", dir / "model/b");
  EXPECT_THAT(refusal(dir / "model"), AllOf(HasSubstr("model/b"), HasSubstr("symbolic links")));
}

TEST(OpenCheckpoint, RefusesLinksThatLeadOut) {
  TempDir dir;
  write_sharded(dir / "model", R"({"x":"a","y":"b"})");
  fs::create_directory(dir / "disk");
  fs::rename(dir / "model/b", dir / "disk/b");
  fs::create_symlink("../disk/b", dir / "model/b");
  EXPECT_THAT(refusal(dir / "model"),
              AllOf(HasSubstr("model/b"), HasSubstr("disk/b"), HasSubstr("--allow-outside-links")));
  EXPECT_EQ(open_checkpoint({dir / "model", OutsideLinks::allowed}).files()[1].name, "b");

  // The same holds for each mirror.
  fs::remove(dir / "model/b");
  fs::create_directory(dir / "mirror");
  fs::create_symlink("../disk/b", dir / "mirror/b");
  const std::vector<fs::path> mirrors{dir / "mirror"};
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { open_checkpoint(dir / "model", mirrors); }),
              HasSubstr("mirror/b"));
  EXPECT_EQ(open_checkpoint({dir / "model", OutsideLinks::allowed}, mirrors).files()[1].name, "b");
}

TEST(OpenCheckpoint, ReadsTheHubCache) {
  TempDir dir;
  fs::path snapshot = dir / "models--a--b/snapshots/0123";
  fs::create_directories(snapshot);
  fs::create_directories(dir / "models--a--b/blobs");
  write_file(dir / "models--a--b/blobs/feed", one_tensor("x"));
  fs::create_symlink("../../blobs/feed", snapshot / kSingle);
  EXPECT_NE(open_checkpoint(snapshot).find("x"), nullptr);

  fs::rename(dir / "models--a--b/blobs/feed", dir / "models--a--b/blobs/feed.incomplete");
  EXPECT_THAT(refusal(snapshot), AllOf(HasSubstr("symbolic link"), HasSubstr("feed.incomplete")));
  fs::remove(snapshot / kSingle);
  EXPECT_THAT(refusal(snapshot), HasSubstr("feed.incomplete"));
}

TEST(OpenCheckpoint, ExplainsAnUnfinishedDownload) {
  TempDir dir;
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr(kSingle), HasSubstr(kIndex)));
  write_file(dir / "model.safetensors.part", "x");
  EXPECT_THAT(refusal(dir.path()), HasSubstr("model.safetensors.part"));
  fs::remove(dir / "model.safetensors.part");

  write_sharded(dir.path(), R"({"x":"a","y":"b"})");
  fs::remove(dir / "b");
  EXPECT_THAT(refusal_of_all(dir.path()),
              AllOf(HasSubstr("/b: "), HasSubstr("1 of 2 files are missing")));
  fs::create_directories(dir / ".cache/huggingface/download");
  write_file(dir / ".cache/huggingface/download/b.77.incomplete", "x");
  EXPECT_THAT(refusal_of_all(dir.path()), HasSubstr("b.77.incomplete"));
  fs::remove(dir / "a");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("/a: "), HasSubstr("2 of 2 files")));
  write_file(dir / "a", one_tensor("x"));

  write_file(dir / "b", one_tensor("y").substr(0, one_tensor("y").size() - 1));
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("/b: "), HasSubstr("y")));
}

// Only who needs them is told: they may be a head that is tied, or a tower that was left out.
TEST(OpenCheckpoint, KnowsWhatTheIndexNamesAndNoFileHas) {
  TempDir dir;
  write_sharded(dir.path(), R"({"x":"a","y":"b","ghost":"a","ghost2":"a","far":"c"})");
  const CheckpointIndex index = open_checkpoint(dir.path());
  EXPECT_THAT(index.warnings(),
              ElementsAre(HasSubstr("far (and 2 more) is listed, but not there")));
  EXPECT_EQ(index.tensors().size(), 2u);
  for (const char* name : {"x", "y", "ghost", "ghost2", "far"}) EXPECT_TRUE(index.is_named(name));
  for (const char* name : {"x", "y", "z"}) index.refuse_absent(name);
  EXPECT_FALSE(index.is_named("z"));
  const auto fault = [&](const char* name) {
    return error_of(ErrorKind::refused, [&] { index.refuse_absent(name); });
  };
  EXPECT_THAT(fault("ghost2"), AllOf(HasSubstr("/a: "), HasSubstr("tensor ghost2")));
  EXPECT_THAT(fault("far"), AllOf(HasSubstr("/c: "), HasSubstr("1 of 3 files are missing")));
}

TEST(OpenCheckpoint, HasTheTensorsOfFilesBehindOneThatIsMissing) {
  TempDir dir;
  write_sharded(dir.path(), R"({"far":"0","x":"a","y":"b"})");
  const CheckpointIndex index = open_checkpoint(dir.path());
  EXPECT_THAT(index.warnings(), ElementsAre(HasSubstr("far is listed, but not there")));
  for (const char* name : {"x", "y"}) EXPECT_NE(index.find(name), nullptr);
}

TEST(OpenCheckpoint, RefusesWhatIsNoDirectoryOfFiles) {
  TempDir dir;
  EXPECT_THAT(refusal(dir / "absent"), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(refusal(""), HasSubstr("No such file"));
  write_file(dir / "file", one_tensor("x"));
  EXPECT_THAT(refusal(dir / "file"), HasSubstr("not a directory"));

  ASSERT_EQ(mkfifo((dir / kSingle).c_str(), 0600), 0);
  EXPECT_THAT(refusal(dir.path()), HasSubstr("FIFO"));
  fs::remove(dir / kSingle);
  fs::create_directory(dir / kSingle);
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr(kSingle), HasSubstr("is a directory")));
  fs::remove(dir / kSingle);
  write_file(dir / kSingle, safetensors("{}", ""));
  EXPECT_THAT(refusal(dir.path()), HasSubstr("no tensors"));
}

TEST(OpenCheckpoint, RefusesWhatMayNotBeRead) {
  TempDir dir;
  fs::permissions(dir.path(), fs::perms::all);
  write_file(dir / kSingle, one_tensor("x"));
  fs::permissions(dir / kSingle, fs::perms::none);
  {
    Unprivileged scope;
    EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr(kSingle), HasSubstr("Permission denied")));
  }
  fs::permissions(dir.path(), fs::perms::none);
  {
    Unprivileged scope;
    EXPECT_THAT(refusal(dir.path()), HasSubstr("Permission denied"));
  }
  fs::permissions(dir.path(), fs::perms::owner_all);  // so that it can be removed
}

TEST(OpenCheckpoint, LeavesNoPageCacheBehind) {
  TempDir dir;
  write_file(dir / kSingle,
             safetensors(object({entry("x", 0, 3'000'000)}), std::string(3'000'000, 'x')));
  push_to_disk(dir / kSingle);
  if (cached_pages(dir / kSingle) != 0u) {
    GTEST_SKIP() << "this file system's pages cannot be dropped";
  }
  open_checkpoint(dir.path());
  EXPECT_EQ(cached_pages(dir / kSingle), 0u);
}

TEST(OpenCheckpoint, FindsWhatIsMissingAndCopiesInMirrors) {
  fs::path whole = test::source_dir() / "tests/data/io/sharded";
  CheckpointIndex expected = open_checkpoint(whole);
  ASSERT_GE(expected.files().size(), 2u);
  test::TempDir part;
  test::TempDir rest;
  std::vector<fs::path> mirrors{rest.path()};
  fs::copy(whole, part.path(), fs::copy_options::recursive);
  std::string moved = expected.files()[1].name;
  fs::copy(part.path() / moved, rest.path() / moved);

  CheckpointIndex copied = open_checkpoint(part.path(), mirrors);
  ASSERT_EQ(copied.copies().size(), 1u);
  EXPECT_EQ(copied.copies()[0].of, 1u);

  fs::remove(part.path() / moved);
  CheckpointIndex spread = open_checkpoint(part.path(), mirrors);
  EXPECT_TRUE(spread.copies().empty());
  EXPECT_EQ(spread.files()[1].path, fs::canonical(rest.path() / moved));
  EXPECT_EQ(spread.tensors().size(), expected.tensors().size());
  EXPECT_EQ(open_checkpoint(part.path()).absent().size(), 1u);

  std::string other = test::read_file(whole / expected.files()[0].name);
  test::write_file(rest.path() / expected.files()[0].name, other + std::string(8, '\0'));
  EXPECT_THROW(open_checkpoint(part.path(), mirrors), Error);
}

}  // namespace
}  // namespace sluice::io
