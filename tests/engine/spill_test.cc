// The spill cache: what is streamed is encoded once; whatever happens to the cache, the bits stay
// the same.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "src/base/checksum.h"
#include "src/load/spill_header.h"
#include "tests/engine/spill_model.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

TEST_F(SpillTest, LaterPassesAndStartsReadTheSmallForm) {
  use_three_layers();
  for (const QuantScheme& scheme : quant_schemes()) {
    SCOPED_TRACE(scheme.name);
    ModelOptions o = options(scheme.name);
    std::string expected = resident(o).bits;
    EXPECT_FALSE(fs::exists(cache()) && scheme.group == ScaleGroup::none)
        << "nothing is written for what stays in memory or is not quantized";
    Outcome first = outcome(o);
    EXPECT_EQ(first.bits, expected);
    if (scheme.group == ScaleGroup::none) {
      EXPECT_TRUE(first.spill.paths.empty());
      continue;
    }
    EXPECT_EQ(first.spill.outcome, "written");
    EXPECT_GT(first.stream.spilled_bytes, 0u) << "later passes of the same run";
    Outcome second = outcome(o);
    EXPECT_EQ(second.bits, expected);
    EXPECT_EQ(second.spill.outcome, "reused");
    // Only rows of the table are read beside the tiles, from the spill too: panels of codes and
    // scales, in whole blocks of the disk.
    uint64_t lookups = (kPrompt + kSteps) * 16 * 512;
    EXPECT_LE(second.stream.io.bytes_requested, second.stream.spilled_bytes + lookups);
    clear_spill_files(cache());
  }
}

TEST_F(SpillTest, WhatStaysIsLoadedFromItToo) {
  constexpr double kShare = 0.9;
  std::string expected = resident(options()).bits;
  Outcome first = outcome(options(), kShare);
  Outcome second = outcome(options(), kShare);
  EXPECT_EQ(first.spill.outcome, "written");
  EXPECT_EQ(second.spill.outcome, "reused");
  EXPECT_EQ(first.bits, expected);
  EXPECT_EQ(second.bits, expected);
#ifndef __SANITIZE_ADDRESS__  // whose own memory makes the two budgets differ
  EXPECT_LT(second.load_read, first.load_read);
#endif
}

TEST_F(SpillTest, DamageIsNeverUsed) {
  std::string expected = resident(options()).bits;
  outcome(options());
  uint64_t size = fs::file_size(only_file());
  test::Random random("flipped bits");
  for (int round = 0; round < (test::is_brief() ? 4 : 12); ++round) {
    // A run whose damage shows late leaves no file.
    if (list_spill_files(cache()).empty()) outcome(options());
    fs::path file = only_file();
    // Mostly codes; now and then the header and the index at the end.
    uint64_t at = round % 6 == 0 ? static_cast<uint64_t>(random.between(0, 600))
                  : round % 6 == 1
                      ? size - 1 - static_cast<uint64_t>(random.between(0, 4000))
                      : static_cast<uint64_t>(random.between(0, static_cast<int64_t>(size) - 1));
    flip(file, at);
    Outcome damaged = outcome(options());
    EXPECT_EQ(damaged.bits, expected) << "byte " << at;
    // Padding is not protected, and the rest is written anew by this run or the next.
    EXPECT_EQ(outcome(options()).bits, expected);
    if (round % 8 == 7) outcome(options());
  }
}

TEST_F(SpillTest, ATruncatedOrForeignFileIsReplaced) {
  std::string expected = resident(options()).bits;
  outcome(options());
  fs::path file = only_file();
  uint64_t size = fs::file_size(file);
  for (uint64_t left : {size - 1, size / 2, uint64_t{100}, uint64_t{0}}) {
    fs::resize_file(file, left);
    Outcome after = outcome(options());
    EXPECT_EQ(after.bits, expected) << left;
    EXPECT_EQ(after.spill.outcome, "written") << left;
    EXPECT_EQ(fs::file_size(file), size);
  }
}

TEST_F(SpillTest, AChangedCheckpointIsEncodedAnew) {
  outcome(options());
  uint64_t size = fs::file_size(only_file());
  test::Random random("other weights");
  write_model(random);
  Outcome after = outcome(options());
  EXPECT_EQ(after.spill.outcome, "written");
  EXPECT_EQ(after.bits, resident(options()).bits);
  EXPECT_EQ(fs::file_size(only_file()), size) << "it takes the place of the old one";
}

TEST_F(SpillTest, VerifyFindsWeightsThatChangedUnseen) {
  outcome(options());
  ModelOptions verify = options();
  verify.spill.verify = true;
  EXPECT_EQ(outcome(verify).spill.outcome, "verified");

  // Other bytes with the same size, inode and time.
  fs::path shard = model() / "model-00002-of-00002.safetensors";
  auto time = fs::last_write_time(shard);
  flip(shard, fs::file_size(shard) - 1001);
  fs::last_write_time(shard, time);
  EXPECT_EQ(outcome(options()).spill.outcome, "reused") << "which nobody could know";
  Outcome found = outcome(verify);
  EXPECT_NE(found.spill.outcome.find("is not what the checkpoint gives"), std::string::npos)
      << found.spill.outcome;
  EXPECT_EQ(found.bits, resident(options()).bits);
  EXPECT_EQ(outcome(options()).spill.outcome, "written") << "the wrong one is gone";
}

TEST_F(SpillTest, OneProcessFillsAndOthersGoOn) {
  outcome(options());
  fs::path file = only_file();
  fs::remove(file);
  fs::path part = file;
  part += ".part";
  {
    io::Fd other(open(part.c_str(), O_RDWR | O_CREAT, 0666));
    ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
    Outcome beside = outcome(options());
    EXPECT_EQ(beside.spill.outcome, "being filled by another process");
    EXPECT_EQ(beside.bits, resident(options()).bits);
    EXPECT_EQ(clear_spill_files(cache()), 0u) << "it is being written";
    EXPECT_TRUE(fs::exists(part));
  }
  // The other one was killed: what it left is no obstacle.
  EXPECT_EQ(outcome(options()).spill.outcome, "written");
  EXPECT_FALSE(fs::exists(part));
}

TEST_F(SpillTest, StaysWithinItsLimit) {
  std::string expected = resident(options()).bits;
  outcome(options());
  uint64_t size = fs::file_size(only_file());
  for (uint64_t limit : {size - 1, size / 2, size / 8, uint64_t{20000}, uint64_t{1}}) {
    ModelOptions o = options();
    o.spill.limit = std::to_string(limit);
    for (int start = 0; start < 2; ++start) {
      Outcome out = outcome(o);
      EXPECT_EQ(out.bits, expected) << limit;
      uint64_t held = 0;
      for (const SpillFileInfo& f : list_spill_files(cache())) held += f.bytes;
      EXPECT_LE(held, std::max(limit, size) + 4096);
      if (limit > size / 4) {
        EXPECT_LE(held, limit);
#ifndef __SANITIZE_ADDRESS__  // which makes the budgets differ, and so what is streamed and kept
        EXPECT_EQ(out.spill.outcome, start == 0 ? "written" : "reused") << limit;
#endif
      }
    }
  }
}

TEST_F(SpillTest, TheLeastRecentlyUsedMakesRoom) {
  outcome(options("fp8_per_channel"));
  uint64_t size = fs::file_size(only_file());
  fs::path oldest = only_file();
  utimensat(AT_FDCWD, oldest.c_str(), std::array<timespec, 2>{{{1000, 0}, {0, UTIME_OMIT}}}.data(),
            0);
  ModelOptions o = options("fp8_per_tensor");
  o.spill.limit = std::to_string(3 * size / 2);
  EXPECT_EQ(outcome(o).spill.outcome, "written");
  EXPECT_FALSE(fs::exists(oldest));
  EXPECT_EQ(list_spill_files(cache()).size(), 1u);
}

TEST_F(SpillTest, ADirectoryThatCannotBeWrittenCostsSpeedOnly) {
  test::write_file(cache_.path() / "spill", "a file, not a directory");
  Outcome out = outcome(options());
  EXPECT_EQ(out.bits, resident(options()).bits);
  EXPECT_FALSE(out.spill.outcome.empty());
  EXPECT_EQ(out.stream.spilled_bytes, 0u);
}

// Tensors are found by their names, whatever else another plan has put into the file.
TEST_F(SpillTest, AnotherPlansFileHasTheTensorsOfThisOne) {
  ModelOptions fewer = options();
  fewer.quantize.roles = {ParamRole::linear};
  const std::string expected = resident(fewer).bits;
  EXPECT_EQ(outcome(fewer).spill.outcome, "written");
  const uint64_t size = fs::file_size(only_file());
  EXPECT_EQ(outcome(options()).spill.outcome, "written") << "it streams the head too";
  EXPECT_GT(fs::file_size(only_file()), size);
  const Outcome again = outcome(fewer);
  EXPECT_EQ(again.spill.outcome, "reused");
  EXPECT_EQ(again.bits, expected);
  EXPECT_GT(again.stream.spilled_bytes, 0u);
}

// Sizes and places that no writer has put into an index, under its checksum.
TEST_F(SpillTest, AnIndexThatLiesIsNotBelieved) {
  use_three_layers();
  const std::string expected = resident(options()).bits;
  outcome(options());
  const std::string good = test::read_file(only_file());
  const Json header = Json::parse(good.substr(0, good.find('\0')));
  const auto index_offset = header["index_offset"].get<uint64_t>();
  const auto lie = [&](size_t field, uint64_t value, size_t bytes) {
    std::string index = good.substr(index_offset);
    std::memcpy(index.data() + field, &value, bytes);
    Json now = header;
    now["index_checksum"] = checksum128(std::as_bytes(std::span(index)));
    std::string text = now.dump();
    text.resize(kSpillHeaderBytes);
    test::write_file(
        only_file(),
        text + good.substr(kSpillHeaderBytes, index_offset - kSpillHeaderBytes) + index);
    EXPECT_EQ(outcome(options()).bits, expected) << field << ": " << value;
    if (list_spill_files(cache()).empty()) outcome(options());
    EXPECT_EQ(test::read_file(only_file()).substr(index_offset + field, bytes),
              good.substr(index_offset + field, bytes))
        << field << ": " << value << " is mended";
  };
  for (uint64_t value : {uint64_t{0}, uint64_t{1} << 62, UINT64_MAX}) {
    for (size_t field : {offsetof(SpillRecord, begin), offsetof(SpillRecord, panel_bytes),
                         offsetof(SpillRecord, panels), offsetof(SpillRecord, panel_scales)})
      lie(field, value, sizeof(uint64_t));
    for (size_t field : {offsetof(SpillRecord, planes), offsetof(SpillRecord, name_bytes)})
      lie(field, value == 0 ? 0 : UINT32_MAX - value % 2, sizeof(uint32_t));
  }
  lie(offsetof(SpillRecord, begin), kSpillHeaderBytes + 16, sizeof(uint64_t));
}

// A copy in each of two directories: either may be missing, cut short or unusable.
TEST_F(SpillTest, CopiesAreReadTogetherAndStandInForEachOther) {
  test::TempDir other;
  ModelOptions o = options();
  o.spill.directories = {cache(), other.path() / "spill"};
  std::string expected = resident(options()).bits;
  Outcome first = outcome(o);
  EXPECT_EQ(first.bits, expected);
  EXPECT_EQ(first.spill.outcome, "written");
  fs::path here = only_file();
  fs::path there = list_spill_files(other.path() / "spill").at(0).path;
  EXPECT_EQ(test::read_file(here), test::read_file(there));
  uint64_t size = fs::file_size(there);

  auto reused = [&](uint64_t copies) {
    Outcome again = outcome(o);
    EXPECT_EQ(again.bits, expected);
    EXPECT_EQ(again.spill.outcome, "reused") << copies << " copies";
    uint64_t lookups = (kPrompt + kSteps) * 16 * 256;
    EXPECT_LE(again.stream.io.bytes_requested, again.stream.spilled_bytes + lookups);
  };
  reused(2);
  fs::resize_file(there, size / 2);
  reused(1);
  fs::remove(there);
  reused(1);
  fs::rename(here, there);
  reused(1);
  flip(there, size / 2);  // the only one left
  EXPECT_EQ(outcome(o).bits, expected);

  fs::remove_all(other.path() / "spill");
  test::write_file(other.path() / "spill", "a file, not a directory");
  clear_spill_files(cache());
  first = outcome(o);
  EXPECT_EQ(first.bits, expected);
  EXPECT_EQ(first.spill.outcome, "written");
  reused(1);
}

}  // namespace
}  // namespace sluice
