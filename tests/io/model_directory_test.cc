#include "io/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/file.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const ModelDirectory& directory, std::string_view name) {
  return error_of(ErrorKind::refused, [&] { directory.resolve(name); });
}

TEST(ModelDirectory, FollowsLinksWithin) {
  TempDir dir;
  fs::create_directories(dir / "model/sub");
  test::write_file(dir / "model/real", "x");
  fs::create_symlink("../real", dir / "model/sub/inner");
  fs::create_directory_symlink("sub", dir / "model/other");
  fs::create_symlink("loop", dir / "model/loop");
  fs::create_directory_symlink("model", dir / "alias");

  const fs::path real = fs::canonical(dir / "model/real");
  for (const char* name : {"real", "sub/inner", "other/inner"})
    EXPECT_EQ(ModelDirectory(dir / "model").resolve(name), real);
  EXPECT_EQ(ModelDirectory(dir / "alias").resolve("real"), real);
  EXPECT_EQ(ModelDirectory(dir / "alias").read("sub/inner", 1), "x");
  for (const char* name : {"loop", "absent"})
    EXPECT_THAT(refusal(dir / "model", name), HasSubstr(name));
}

TEST(ModelDirectory, RefusesLinksThatLeadOut) {
  TempDir dir;
  fs::create_directories(dir / "model");
  fs::create_directories(dir / "model-2");
  test::write_file(dir / "model-2/file", "x");
  fs::create_symlink("../model-2/file", dir / "model/link");
  fs::create_symlink((dir / "model-2/file").string(), dir / "model/absolute");
  fs::create_symlink("link", dir / "model/twice");
  fs::create_directory_symlink("../model-2", dir / "model/sub");

  for (const char* name : {"link", "absolute", "twice", "sub/file"}) {
    EXPECT_THAT(refusal(dir / "model", name),
                AllOf(HasSubstr(std::string("model/") + name), HasSubstr("model-2/file"),
                      HasSubstr("--allow-outside-links")));
    EXPECT_EQ(ModelDirectory(dir / "model", OutsideLinks::allowed).read(name, 1), "x");
  }
}

TEST(ModelDirectory, LetsTheUserNameAnyFile) {
  TempDir dir;
  fs::create_directories(dir / "model");
  test::write_file(dir / "file", "x");
  for (const char* name : {"a", "b"}) fs::create_symlink("../file", dir / "model" / name);
  const ModelFile named(dir / "model/a");
  EXPECT_EQ(named.directory.read(named.name, 1), "x");
  EXPECT_THAT(refusal(named.directory, "b"), HasSubstr("model/b"));
}

TEST(ModelDirectory, KnowsTheBlobsOfTheHubsCache) {
  TempDir cache;
  const fs::path repository = cache / "models--a--b", snapshot = repository / "snapshots/0123";
  fs::create_directories(snapshot / "sub");
  for (const fs::path& blobs :
       {repository / "blobs", cache / "blobs", cache / "models--c--d/blobs"}) {
    fs::create_directories(blobs);
    test::write_file(blobs / "feed", "x");
  }
  fs::create_symlink("../../blobs/feed", snapshot / "own");
  fs::create_symlink("../../../blobs/feed", snapshot / "sub/own");
  fs::create_symlink("../../../models--c--d/blobs/feed", snapshot / "others");
  fs::create_symlink("../../blobs/beef", snapshot / "shared");
  fs::create_symlink("../../blobs/feed", repository / "blobs/beef");
  for (const fs::path& directory : {snapshot, fs::path(snapshot / "sub")})
    EXPECT_EQ(ModelDirectory(directory).read("own", 1), "x");
  EXPECT_EQ(ModelDirectory(snapshot).read("sub/own", 1), "x");
  EXPECT_THAT(refusal(snapshot, "others"), HasSubstr("0123/others"));
  EXPECT_THAT(refusal(snapshot, "shared"), HasSubstr("0123/shared"));
  test::write_file(cache / "blobs/.huggingface-shared-blobs", "1\n");
  EXPECT_EQ(ModelDirectory(snapshot).read("shared", 1), "x");

  // A repository may have any name; its snapshots have theirs.
  fs::rename(repository, cache / "copied");
  EXPECT_EQ(ModelDirectory(cache / "copied/snapshots/0123").read("own", 1), "x");
  fs::rename(cache / "copied/snapshots", cache / "copied/models");
  EXPECT_THAT(refusal(cache / "copied/models/0123", "own"), HasSubstr("0123/own"));
}

TEST(ModelDirectory, HasRegularFilesOnly) {
  TempDir dir;
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  fs::create_symlink("fifo", dir / "to_fifo");
  fs::create_symlink("/dev/zero", dir / "to_device");
  fs::create_directory_symlink(".", dir / "to_directory");
  const ModelDirectory directory(dir.path(), OutsideLinks::allowed);
  const auto refusal = [&](const char* name) {
    return error_of(ErrorKind::refused, [&] { directory.read(name, 100); });
  };
  EXPECT_THAT(refusal("to_fifo"), HasSubstr("FIFO"));
  EXPECT_THAT(refusal("to_device"), HasSubstr("is a device"));
  EXPECT_THAT(refusal("to_directory"), HasSubstr("is a directory"));
}

TEST(OpenResolved, FollowsNoLinkThatHasCome) {
  TempDir dir;
  fs::create_directories(dir / "model/sub");
  fs::create_directories(dir / "outside");
  test::write_file(dir / "model/sub/file", "x");
  test::write_file(dir / "outside/file", "y");
  const fs::path path = ModelDirectory(dir / "model").resolve("sub/file");
  EXPECT_TRUE(open_resolved(path).is_open());
  fs::rename(dir / "model/sub", dir / "model/old");
  fs::create_directory_symlink("../outside", dir / "model/sub");
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { open_resolved(path); }), HasSubstr("sub/file"));
}

}  // namespace
}  // namespace sluice::io
