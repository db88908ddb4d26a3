// Faults below the readers: every kind of reader answers them in the same way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "io/reader.h"
#include "src/base/units.h"
#include "tests/io/faulty_calls.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kSlot = 256 * KiB;
constexpr uint64_t kSlots = 4;

class ReaderFaults : public testing::TestWithParam<ReaderKind> {
 protected:
  ReaderFaults()
      : random_("reader faults"),
        bytes_(random_bytes(random_, 1'500'000)),
        file_(make_file(dir_ / "f", bytes_)),
        staging_(kSlot * kSlots) {}

  std::unique_ptr<Reader> open(const SystemCalls& calls, bool direct = true) {
    ReaderOptions options;
    options.kind = GetParam();
    options.slot_bytes = kSlot;
    options.chunk_bytes = 64 * KiB;
    options.direct = direct;
    return open_reader(std::span(&file_, 1), staging_.span(), options, calls);
  }

  // The whole file, in requests of odd lengths.
  std::string read_all(Reader& reader) {
    std::string got(bytes_.size(), '\0');
    uint64_t offset = 0;
    while (offset < got.size() || reader.free_slots() < static_cast<int>(kSlots)) {
      if (offset < got.size() && reader.free_slots() > 0) {
        uint64_t length = std::min<uint64_t>(reader.max_read() - 77, got.size() - offset);
        reader.submit({0, offset, length, offset});
        offset += length;
      } else {
        ReadResult result = reader.wait();
        std::memcpy(got.data() + result.tag, result.bytes.data(), result.bytes.size());
        reader.release(result);
      }
    }
    return got;
  }

  test::Random random_;
  TempDir dir_;
  std::string bytes_;
  CheckpointFile file_;
  Staging staging_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ReaderFaults,
                         testing::Values(ReaderKind::uring, ReaderKind::pread, ReaderKind::mmap),
                         [](const auto& kind) {
                           return std::string(kind.param == ReaderKind::uring   ? "uring"
                                              : kind.param == ReaderKind::pread ? "pread"
                                                                                : "mmap");
                         });

TEST_P(ReaderFaults, RetriesWhatIsPassing) {
  for (bool direct : {true, false}) {
    FaultyCalls calls({.short_reads = 0.4, .interrupted = 0.1, .try_again = 0.1}, random_);
    auto reader = open(calls, direct);
    EXPECT_TRUE(read_all(*reader) == bytes_);
    EXPECT_GT(reader->stats().retries, 0u);
    EXPECT_GE(reader->stats().reads, reader->stats().retries);
  }
}

TEST_P(ReaderFaults, GivesUpWhatNeverPasses) {
  FaultyCalls calls({.try_again = 1}, random_);
  auto reader = open(calls);
  reader->submit({0, 5000, 5000, 0});
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { reader->wait(); }),
              AllOf(HasSubstr(file_.path.string()), HasSubstr("attempts brought nothing")));
}

TEST_P(ReaderFaults, ReportsAnIoErrorAtOnce) {
  int64_t last = GetParam() == ReaderKind::mmap ? 0 : std::ssize(bytes_) - 1;
  uint64_t at = static_cast<uint64_t>(random_.between(0, last));
  FaultyCalls calls({.io_error_at = at}, random_);
  auto reader = open(calls);
  std::string message = error_of(ErrorKind::runtime, [&] { read_all(*reader); });
  EXPECT_THAT(message, AllOf(HasSubstr(file_.path.string()), HasSubstr("Input/output error")));
  uint64_t offset = std::stoull(message.substr(message.find("offset ") + 7));
  EXPECT_LE(offset, at);
  EXPECT_GT(offset + 64 * KiB, at);
  EXPECT_LE(calls.reads(), 40) << "an I/O error was retried";
  reader.reset();  // what else was in flight is drained
}

TEST_P(ReaderFaults, NoticesAFileThatShrinks) {
  for (bool direct : {true, false}) {
    auto reader = open(system_calls(), direct);
    fs::resize_file(file_.path, 700'000);
    EXPECT_THAT(error_of(ErrorKind::runtime, [&] { read_all(*reader); }),
                AllOf(HasSubstr(file_.path.string()), HasSubstr("changed while it was being read"),
                      HasSubstr("700000")));
    reader.reset();
    file_ = make_file(dir_ / "f", bytes_);
  }
}

// Reads that are under way meanwhile give the old bytes or the error, but no crash.
TEST_P(ReaderFaults, SurvivesShrinkingWithReadsInFlight) {
  auto reader = open(system_calls());
  for (uint64_t i = 0; i < kSlots; ++i) reader->submit({0, i * kSlot, kSlot, i * kSlot});
  fs::resize_file(file_.path, 0);
  int arrived = 0;
  try {
    for (; arrived < static_cast<int>(kSlots); ++arrived) {
      ReadResult result = reader->wait();
      EXPECT_EQ(std::memcmp(result.bytes.data(), bytes_.data() + result.tag, kSlot), 0);
    }
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("changed while it was being read"));
  }
  EXPECT_TRUE(GetParam() != ReaderKind::mmap || arrived == 0) << "read from beyond the end";
}

class DirectFaults : public ReaderFaults {};
INSTANTIATE_TEST_SUITE_P(Kinds, DirectFaults,
                         testing::Values(ReaderKind::uring, ReaderKind::pread));

TEST_P(DirectFaults, ReadsThroughTheCacheWithoutODirect) {
  for (const Faults& faults :
       {Faults{.refuse_direct_open = true}, Faults{.refuse_direct_read = true},
        Faults{.direct_alignment = 0}, Faults{.direct_alignment = 3 * 4096}}) {
    FaultyCalls calls(faults, random_);
    auto reader = open(calls);
    EXPECT_THAT(reader->description(), HasSubstr("no O_DIRECT"));
    EXPECT_TRUE(read_all(*reader) == bytes_);
  }
  if (open(system_calls())->description().find("no O_DIRECT") != std::string::npos) return;
  FaultyCalls calls({.direct_alignment = 512}, random_);
  EXPECT_THAT(open(calls)->description(), HasSubstr(", O_DIRECT, "));
}

class UringFaults : public ReaderFaults {};
INSTANTIATE_TEST_SUITE_P(Kinds, UringFaults,
                         testing::Values(ReaderKind::uring, ReaderKind::automatic));

TEST_P(UringFaults, FallsBackWhereTheRingIsForbidden) {
  for (int error : {EPERM, ENOSYS, ENOMEM}) {
    FaultyCalls calls({.ring_error = error}, random_);
    if (GetParam() == ReaderKind::uring) {
      EXPECT_THAT(error_of(ErrorKind::usage, [&] { open(calls); }), HasSubstr(errno_text(error)));
      continue;
    }
    auto reader = open(calls);
    EXPECT_EQ(reader->name(), "pread");
    EXPECT_THAT(reader->description(), HasSubstr("io_uring: " + errno_text(error)));
    EXPECT_TRUE(read_all(*reader) == bytes_);
  }
}

TEST_P(UringFaults, NeedsNeitherRegistrationNorNewFlags) {
  for (const Faults& faults :
       {Faults{.register_error = ENOMEM}, Faults{.unknown_flags = IORING_SETUP_COOP_TASKRUN}}) {
    FaultyCalls calls(faults, random_);
    auto reader = open(calls);
    EXPECT_EQ(reader->name(), "uring");
    EXPECT_TRUE(read_all(*reader) == bytes_);
    bool registered = reader->description().find("registered buffers") != std::string::npos;
    EXPECT_FALSE(registered && faults.register_error != 0);
  }
}

// The real limit, not a simulated one.
TEST(UringLimits, WorksWithLittleLockedMemory) {
  test::Random random("locked memory");
  TempDir dir;
  fs::permissions(dir.path(), fs::perms::all);
  std::string bytes = random_bytes(random, 300'000);
  CheckpointFile file = make_file(dir / "f", bytes);
  ReaderOptions options;
  Staging staging(options.slot_bytes);
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 64 * KiB;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
  std::unique_ptr<Reader> reader;
  {
    Unprivileged scope;
    reader = open_reader(std::span(&file, 1), staging.span(), options);
  }
  setrlimit(RLIMIT_MEMLOCK, &before);
  EXPECT_THAT(reader->description(), Not(HasSubstr("registered")));
  reader->submit({0, 1, bytes.size() - 1, 0});
  ReadResult result = reader->wait();
  EXPECT_EQ(std::memcmp(result.bytes.data(), bytes.data() + 1, bytes.size() - 1), 0);
}

TEST(MmapFaults, SaysWhatItNeeds) {
  test::Random random("mmap faults");
  TempDir dir;
  CheckpointFile file = make_file(dir / "f", "12345678");
  ReaderOptions options;
  options.kind = ReaderKind::mmap;
  Staging staging(options.slot_bytes);
  FaultyCalls no_copy({.refuse_copy = true}, random);
  EXPECT_THAT(error_of(ErrorKind::usage,
                       [&] { open_reader(std::span(&file, 1), staging.span(), options, no_copy); }),
              HasSubstr("Operation not permitted"));
  FaultyCalls no_map({.mmap_error = ENOMEM}, random);
  auto reader = open_reader(std::span(&file, 1), staging.span(), options, no_map);
  reader->submit({0, 0, 8, 0});
  EXPECT_THAT(error_of(ErrorKind::runtime, [&] { reader->wait(); }),
              AllOf(HasSubstr(file.path.string()), HasSubstr("Cannot allocate memory")));
}

}  // namespace
}  // namespace sluice::io
