#include "io/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "io/dummy.h"
#include "src/base/units.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::HasSubstr;

struct Way {
  const char* name;
  ReaderKind kind;
  bool direct;
};

class ReaderTest : public testing::TestWithParam<Way> {
 protected:
  ReaderOptions options() const {
    ReaderOptions o;
    o.kind = GetParam().kind;
    o.direct = GetParam().direct;
    return o;
  }
  TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Ways, ReaderTest,
                         testing::Values(Way{"uring_direct", ReaderKind::uring, true},
                                         Way{"uring_buffered", ReaderKind::uring, false},
                                         Way{"pread_direct", ReaderKind::pread, true},
                                         Way{"pread_buffered", ReaderKind::pread, false},
                                         Way{"mmap", ReaderKind::mmap, true}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Some more extents, as many as may have room in what is left of a slot.
std::vector<Extent> random_extents(test::Random& random, const ReadRequest& first,
                                   const ReaderOptions& options,
                                   std::span<const CheckpointFile> files) {
  std::vector<Extent> more;
  uint64_t room = options.slot_bytes - bytes_in_slot(first.offset, first.length);
  while (more.size() + 1 < options.most_extents && room > kDirectAlignment &&
         random.between(0, 2) > 0) {
    const auto file = static_cast<uint32_t>(random.between(0, std::ssize(files) - 1));
    const int64_t size = static_cast<int64_t>(files[file].size);
    const int64_t offset = random.between(0, size - 1);
    const int64_t most = std::min(size - offset, static_cast<int64_t>(room - kDirectAlignment));
    more.push_back(
        {file, static_cast<uint64_t>(offset), static_cast<uint64_t>(random.between(1, most))});
    room -= bytes_in_slot(more.back().offset, more.back().length);
  }
  return more;
}

// One to three files of random bytes, in every second round with a dummy one.
std::vector<CheckpointFile> random_files(test::Random& random, const test::TempDir& dir, int round,
                                         std::vector<std::string>& contents) {
  std::vector<CheckpointFile> files;
  for (int64_t i = 0, count = random.between(1, 3); i < count; ++i) {
    contents.push_back(random_bytes(random, random.between(1, 1'500'000)));
    files.push_back(make_file(dir / fmt::format("{}.{}", round, i), contents.back()));
  }
  if (round % 2 == 1) {
    contents.emplace_back(static_cast<size_t>(random.between(1, 500'000)), '\0');
    dummy_bytes(0, std::as_writable_bytes(std::span(contents.back())));
    files.push_back(dummy_file(contents.back().size()));
  }
  return files;
}

// A read has the bytes of each extent of its request, where direct reads may put them.
void expect_bytes(const ReadResult& result, const ReadRequest& request,
                  const std::vector<std::string>& contents) {
  const auto expect = [&](std::span<const std::byte> bytes, const Extent& extent) {
    const std::string_view got(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    ASSERT_EQ(got, std::string_view(contents[extent.file]).substr(extent.offset, extent.length));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(got.data()) % kDirectAlignment,
              extent.offset % kDirectAlignment);
  };
  expect(result.bytes, {request.file, request.offset, request.length});
  for (size_t e = 0; e < request.more.size(); ++e) expect(result.more[e], request.more[e]);
}

// Random requests, in flight in random numbers, results released in random order.
TEST_P(ReaderTest, GivesTheFilesBytes) {
  test::Random random("reader");
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> contents;
    const std::vector<CheckpointFile> files = random_files(random, dir_, round, contents);
    ReaderOptions o = options();
    o.slot_bytes = static_cast<uint64_t>(random.between(2, 80)) * kDirectAlignment;
    o.chunk_bytes = static_cast<uint64_t>(random.between(16, 40)) * kDirectAlignment;
    o.most_extents = static_cast<size_t>(random.between(1, kMostExtents));
    Staging staging(o.slot_bytes * static_cast<uint64_t>(random.between(1, 9)));
    auto reader = open_reader(files, staging.span(), o);
    EXPECT_EQ(reader->max_read(), o.slot_bytes - kDirectAlignment);

    std::map<uint64_t, ReadRequest> in_flight;
    std::map<uint64_t, std::vector<Extent>> more;  // of each
    std::vector<ReadResult> held;
    uint64_t requested = 0;
    for (uint64_t tag = 0; tag < 60 || !in_flight.empty();) {
      if (tag < 60 && reader->free_slots() > 0 && random.between(0, 2) > 0) {
        auto file = static_cast<uint32_t>(random.between(0, std::ssize(files) - 1));
        auto size = static_cast<int64_t>(files[file].size);
        int64_t offset = random.between(0, size - 1);
        int64_t most = std::min(size - offset, static_cast<int64_t>(reader->max_read()));
        ReadRequest request{file, static_cast<uint64_t>(offset),
                            static_cast<uint64_t>(random.between(1, most)), tag++,
                            static_cast<uint64_t>(random.between(0, 60)) * kDirectAlignment};
        more[request.tag] = random_extents(random, request, o, files);
        request.more = more[request.tag];
        in_flight[request.tag] = request;
        requested += request.length;
        for (const Extent& extent : request.more) requested += extent.length;
        reader->submit(request);
      } else if (!in_flight.empty()) {
        std::optional<ReadResult> there = reader->poll();
        ASSERT_FALSE(there && reader->name() == "mmap");
        ReadResult result = there ? *there : reader->wait();
        ASSERT_TRUE(in_flight.contains(result.tag));
        ReadRequest r = in_flight[result.tag];
        in_flight.erase(result.tag);
        expect_bytes(result, r, contents);
        held.push_back(result);
      }
      while (!held.empty() && (reader->free_slots() == 0 || random.between(0, 3) == 0)) {
        std::swap(held[static_cast<size_t>(random.between(0, std::ssize(held) - 1))], held.back());
        reader->release(held.back());
        held.pop_back();
        if (!in_flight.empty()) break;
      }
    }
    EXPECT_EQ(reader->stats().bytes_requested, requested);
    EXPECT_GE(reader->stats().bytes_read, requested);
  }
}

TEST_P(ReaderTest, ReadsAlignedSlotsWhole) {
  test::Random random("whole slots");
  ReaderOptions o = options();
  o.slot_bytes = 256 * KiB;
  std::string bytes = random_bytes(random, 3 * 256 * 1024 + 1000);
  CheckpointFile file = make_file(dir_ / "f", bytes);
  Staging staging(2 * o.slot_bytes);
  auto reader = open_reader(std::span(&file, 1), staging.span(), o);
  std::string got(bytes.size(), '\0');
  for (uint64_t offset = 0; offset < bytes.size(); offset += o.slot_bytes) {
    reader->submit({0, offset, std::min(o.slot_bytes, bytes.size() - offset), offset});
    ReadResult result = reader->wait();
    std::memcpy(got.data() + result.tag, result.bytes.data(), result.bytes.size());
    reader->release(result);
  }
  EXPECT_TRUE(got == bytes);
  // The tail is read up to the file's end, and nothing twice.
  EXPECT_EQ(reader->stats().bytes_read, bytes.size());
}

void read_whole(const CheckpointFile& file, const ReaderOptions& options) {
  Staging staging(8 * options.slot_bytes);
  auto reader = open_reader(std::span(&file, 1), staging.span(), options);
  uint64_t offset = 0;
  while (offset < file.size || reader->free_slots() < 8) {
    if (offset < file.size && reader->free_slots() > 0) {
      uint64_t length = std::min(reader->max_read(), file.size - offset);
      reader->submit({0, offset, length, 0});
      offset += length;
    } else {
      reader->release(reader->wait());
    }
  }
}

TEST_P(ReaderTest, LeavesNoPageCacheBehind) {
  test::Random random("page cache");
  ReaderOptions o = options();
  o.slot_bytes = 128 * KiB;
  CheckpointFile file = make_file(dir_ / "f", random_bytes(random, 6'000'001));
  push_to_disk(file.path);
  std::optional<size_t> before = cached_pages(file.path);
  if (!before || *before != 0) GTEST_SKIP() << "this file system's pages cannot be dropped";

  read_whole(file, o);
  EXPECT_EQ(cached_pages(file.path), 0u);
  if (GetParam().direct && o.kind != ReaderKind::mmap) return;
  o.keep_page_cache = true;
  read_whole(file, o);
  EXPECT_GT(cached_pages(file.path), 1000u);
}

// After destruction the staging memory is the caller's: nothing arrives there any more.
TEST_P(ReaderTest, DrainsWhenDestroyed) {
  test::Random random("drain");
  ReaderOptions o = options();
  o.slot_bytes = 512 * KiB;
  o.chunk_bytes = 64 * KiB;
  CheckpointFile file = make_file(dir_ / "f", random_bytes(random, 16 << 20));
  push_to_disk(file.path);
  Staging staging(32 * o.slot_bytes);
  for (int round = 0; round < 5; ++round) {
    auto reader = open_reader(std::span(&file, 1), staging.span(), o);
    for (uint64_t i = 0; i < 32; ++i) reader->submit({0, i * o.slot_bytes, o.slot_bytes, i});
    for (int64_t waits = random.between(0, 3); waits > 0; --waits) reader->wait();
    reader.reset();
    std::fill(staging.span().begin(), staging.span().end(), std::byte{0xAB});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    bool untouched = std::all_of(staging.span().begin(), staging.span().end(),
                                 [](std::byte b) { return b == std::byte{0xAB}; });
    ASSERT_TRUE(untouched);
  }
}

// A cgroup pays for what is in the page cache beside the slots.
TEST(MmapReader, ReadsAheadWithinBounds) {
  TempDir dir;
  test::Random random("bounds");
  ReaderOptions o;
  o.kind = ReaderKind::mmap;
  CheckpointFile file = make_file(dir / "f", random_bytes(random, 32 << 20));
  push_to_disk(file.path);
  Staging staging(16 * o.slot_bytes);
  auto reader = open_reader(std::span(&file, 1), staging.span(), o);
  for (uint64_t i = 0; i < 16; ++i) reader->submit({0, i * o.slot_bytes, o.slot_bytes, i});
  for (int i = 0; i < 16; ++i) {
    std::optional<size_t> pages = cached_pages(file.path);
    if (!pages) GTEST_SKIP() << "the file system keeps its data in the page cache";
    EXPECT_LE(*pages * 4096, 5 * MiB);
    reader->wait();
  }
  EXPECT_LE(cached_pages(file.path), 16u);
}

// Opened by one thread, used by a second and destroyed by a third.
TEST_P(ReaderTest, IsNotTiedToAThread) {
  test::Random random("threads");
  CheckpointFile file = make_file(dir_ / "f", random_bytes(random, 8 << 20));
  push_to_disk(file.path);
  Staging staging(4 * options().slot_bytes);
  auto reader = open_reader(std::span(&file, 1), staging.span(), options());
  std::thread([&] {
    for (uint64_t i = 0; i < 4; ++i) reader->submit({0, i << 21, 1 << 20, i});
    reader->wait();
  }).join();
  std::thread([&] { reader.reset(); }).join();
}

TEST_P(ReaderTest, RefusesAFileThatChanged) {
  CheckpointFile file = make_file(dir_ / "f", "12345678");
  Staging staging(options().slot_bytes);
  auto message = [&] {
    return error_of(ErrorKind::runtime,
                    [&] { open_reader(std::span(&file, 1), staging.span(), options()); });
  };
  auto mtime = fs::last_write_time(file.path);
  fs::last_write_time(file.path, mtime + std::chrono::seconds(1));
  EXPECT_THAT(message(), HasSubstr("has changed since"));
  fs::last_write_time(file.path, mtime);
  EXPECT_THAT(message(), HasSubstr("has changed since"));  // its ctime tells
  file = describe_file(open_regular(file.path), file.path, "f");
  fs::create_hard_link(file.path, dir_ / "another name");
  open_reader(std::span(&file, 1), staging.span(), options());
  test::write_file(dir_ / "other", "12345678");
  fs::last_write_time(dir_ / "other", mtime);
  fs::rename(dir_ / "other", file.path);
  EXPECT_THAT(message(), HasSubstr("has changed since"));
  fs::remove(file.path);
  EXPECT_THAT(message(), HasSubstr((dir_ / "f").string() + ": cannot be opened: No such file"));
}

// One row group of an odd model can need a slot larger than all that readers limit.
TEST(Reader, ReadsAHugeSlot) {
  TempDir dir;
  ReaderOptions o;
  o.slot_bytes = 320 * MiB;
  o.chunk_bytes = 64 * KiB;  // 5,120 of them
  CheckpointFile file = make_file(dir / "f", "start");
  fs::resize_file(file.path, o.slot_bytes - 10);  // a hole: costs no disk
  file = describe_file(open_regular(file.path), file.path, "f");
  Staging staging(o.slot_bytes);
  auto reader = open_reader(std::span(&file, 1), staging.span(), o);
  ASSERT_EQ(reader->free_slots(), 1);
  reader->submit({0, 0, file.size, 7});
  ReadResult result = reader->wait();
  EXPECT_EQ(result.tag, 7u);
  EXPECT_EQ(std::memcmp(result.bytes.data(), "start", 6), 0);
  EXPECT_EQ(result.bytes.back(), std::byte{0});
}

TEST(ReaderKinds, HaveNames) {
  EXPECT_EQ(parse_reader_kind("auto"), ReaderKind::automatic);
  EXPECT_EQ(parse_reader_kind("uring"), ReaderKind::uring);
  EXPECT_EQ(parse_reader_kind("pread"), ReaderKind::pread);
  EXPECT_EQ(parse_reader_kind("mmap"), ReaderKind::mmap);
  EXPECT_EQ(parse_reader_kind("URING"), std::nullopt);
}

}  // namespace
}  // namespace sluice::io
