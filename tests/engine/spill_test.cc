// The spill cache: what is streamed is encoded once; whatever happens to the cache, the bits stay
// the same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/device/host_device.h"
#include "src/engine/session.h"
#include "src/load/spill_directory.h"
#include "tests/engine/placed.h"
#include "tests/io/faulty_calls.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPrompt = 20;
constexpr int64_t kSteps = 3;

// A pass over the streamed weights, without a forward pass.
void one_pass(const ReadPlan& plan, TileStream& stream) {
  for (uint32_t i = 0; i < plan.sweep_tiles(); ++i) {
    Tile tile = plan.tile(i);
    const TensorPlan& t = plan.tensors[tile.move.tensor];
    stream.tile(*plan.params[t.param].param, plan.tile_row(tile), host_stream());
  }
}

class SpillTest : public testing::Test {
 protected:
  SpillTest() {
    test::Random random("a spilled model");
    config_ = test::tiny_config();
    config_["hidden_size"] = 256;
    config_["intermediate_size"] = 1000;  // codes that O_DIRECT cannot write as they lie
    config_["num_hidden_layers"] = 6;
    config_["vocab_size"] = 5000;
    config_["tie_word_embeddings"] = true;
    write_model(random);
  }
  void write_model(test::Random& random) {
    test::write_checkpoint(model(), config_, test::tiny_tensors(config_, random), 2);
  }
  fs::path model() const { return dir_.path(); }
  fs::path cache() const { return cache_.path() / "spill"; }

  SessionOptions options(std::string_view scheme = "fp8_per_channel") const {
    SessionOptions o;
    o.model = model();
    o.quantize.scheme = *find_quant_scheme(scheme);
    o.quantize.roles = {ParamRole::linear, ParamRole::embedding, ParamRole::head};
    o.threads = 2;
    o.spill.directories = {cache()};
    return o;
  }

  struct Outcome {
    std::string bits;
    Spill::Report spill;
    uint64_t load_read = 0;
    StreamReport stream;
  };
  // In the least memory that works, or with `share` of what would make all resident.
  Outcome outcome(const SessionOptions& options, double share = 0) {
    const uint64_t room =
        share > 0 ? test::needs(options, shape).at(share) : test::least_room(options, shape);
    Outcome out = run(*test::placed(options, room, shape));
    EXPECT_GT(out.stream.tiles_used, 0u);
    return out;
  }
  // In as much memory as everything takes.
  Outcome resident(const SessionOptions& options) {
    Session s(options);
    s.place(shape(s));
    return run(s);
  }
  static RunShape shape(const Session& s) { return s.run_shape(kPrompt + kSteps, kPrompt, 1); }

  // A session that has been placed.
  Outcome run(Session& s) {
    LoadProgress progress;
    s.load(progress, {});
    Outcome out;
    out.bits = generate(s.runner());
    EXPECT_LE(s.ledger().peak(Place::host), s.memory_plan().peak());
    if (s.spill() != nullptr) out.spill = s.spill()->report();
    if (s.stream_report()) out.stream = *s.stream_report();
    out.load_read = s.load_report().io.bytes_requested;
    return out;
  }

  // The logits of the prompt's last token and of some steps.
  static std::string generate(Runner& runner) {
    Sequence sequence = runner.new_sequence();
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < kPrompt; ++i) ids.push_back((i * 131 + 7) % 5000);
    std::string bits;
    auto keep = [&](Tensor logits) {
      bits.append(reinterpret_cast<const char*>(logits.row<float>(0)),
                  static_cast<size_t>(logits.cols) * sizeof(float));
    };
    keep(runner.logits(runner.prefill(sequence, ids, {})));
    for (int64_t i = 0; i < kSteps; ++i)
      keep(runner.logits(runner.step(sequence, std::span(ids).first(1), kPrompt + i + 1)));
    return bits;
  }

  fs::path only_file() const {
    std::vector<SpillFileInfo> files = list_spill_files(cache());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? fs::path() : files.front().path;
  }
  static void flip(const fs::path& file, uint64_t at) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(at));
    auto byte = static_cast<char>(f.get() ^ 0x10);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(byte);
  }

  Json config_;
  test::TempDir dir_;
  test::TempDir cache_;
};

TEST_F(SpillTest, LaterPassesAndStartsReadTheSmallForm) {
  for (const QuantScheme& scheme : quant_schemes()) {
    SCOPED_TRACE(scheme.name);
    SessionOptions o = options(scheme.name);
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
    // Beside the tiles only rows of the table are read, from the spill too.
    uint64_t lookups = (kPrompt + kSteps) * 16 * 256;
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
  for (int round = 0; round < 12; ++round) {
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
  SessionOptions verify = options();
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
    SessionOptions o = options();
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
  SessionOptions o = options("fp8_per_tensor");
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

// A copy in each of two directories: either may be missing, cut short or unusable.
TEST_F(SpillTest, CopiesAreReadTogetherAndStandInForEachOther) {
  test::TempDir other;
  SessionOptions o = options();
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

// A copy that ends while it is read: the other one has the rest.
TEST_F(SpillTest, ACopyThatFailsIsLeftOut) {
  test::TempDir other;
  SessionOptions o = options();
  o.spill.directories = {cache(), other.path() / "spill"};
  std::string expected = outcome(o).bits;
  Session probe(options());
  o.memory = std::to_string(probe.smallest(shape(probe)).needed() + 2 * MiB);
  Session s(o);
  s.place(shape(s));
  LoadProgress progress;
  s.load(progress, {});
  fs::resize_file(only_file(), 20000);  // after it was opened
  EXPECT_EQ(generate(s.runner()), expected);
  EXPECT_TRUE(s.spill()->ready());
  EXPECT_EQ(s.spill()->files().size(), 1u);
}

TEST_F(SpillTest, AFileThatIsLostBeforeItIsOpenedCostsSpeedOnly) {
  std::string expected = resident(options()).bits;
  Session session(options());
  QuantizeRequest quantize = session.options().quantize;
  ReadPlan all = lay_out(session.model(), session.index(), quantize);
  ReadPlan plan = compile(session.model(), session.index(), quantize, {256 * KiB, MiB},
                          choose_placement(all, {0}));
  SpillKey key{fs::canonical(model()), "fp8_per_channel", {}};
  auto lose = [&](int how) {
    if (how == 0) fs::remove(only_file());
    if (how == 1) fs::resize_file(only_file(), 20000);
    if (how == 2) fs::resize_file(only_file(), 0);
  };
  auto device = make_host_device();
  auto encoder = make_cpu_encoder(Isa::automatic);
  for (int how = 0; how < 3; ++how) {
    for (bool after_load : {false, true}) {
      outcome(options());
      Ledger ledger;
      Spill spill(plan, session.index(), key, session.options().spill, ledger);
      ASSERT_TRUE(spill.ready());
      LoadOptions load{io::ReaderKind::automatic, 2, &spill};
      if (!after_load) lose(how);
      LoadReport report;
      LoadProgress progress;
      auto residents = Streamer(plan, session.index(), *device, *encoder, ledger, load)
                           .load_all(report, progress, {});
      if (after_load) lose(how);
      TileStream stream(plan, session.index(), *device, *encoder, ledger, report.amax, load, {});
      one_pass(plan, stream);
      EXPECT_FALSE(spill.ready());
      EXPECT_EQ(outcome(options()).bits, expected);
    }
  }
}

// A disk that fills up, or fails, at a given write.
class FullDisk final : public io::SystemCalls {
 public:
  FullDisk(int writes, int allocate_error, int sync_error, int rename_error)
      : writes_left_(writes),
        allocate_error_(allocate_error),
        sync_error_(sync_error),
        rename_error_(rename_error) {}
  int64_t pwrite(int fd, const std::byte* from, size_t length, uint64_t offset) const override {
    if (writes_left_-- <= 0) return -ENOSPC;
    return SystemCalls::pwrite(fd, from, length == 1 ? 1 : length / 2, offset);  // short writes
  }
  int allocate(int fd, uint64_t bytes) const override {
    return allocate_error_ != 0 ? -allocate_error_ : SystemCalls::allocate(fd, bytes);
  }
  int sync(int fd) const override {
    return sync_error_ != 0 ? -sync_error_ : SystemCalls::sync(fd);
  }
  int rename(const char* from, const char* to) const override {
    return rename_error_ != 0 ? -rename_error_ : SystemCalls::rename(from, to);
  }

 private:
  mutable std::atomic<int> writes_left_;
  int allocate_error_;
  int sync_error_;
  int rename_error_;
};

// A load and two passes, without a forward pass.
StreamReport two_passes(Session& session, const ReadPlan& plan, Spill& spill) {
  auto device = make_host_device();
  auto encoder = make_cpu_encoder(Isa::automatic);
  Ledger ledger;
  LoadOptions load{io::ReaderKind::automatic, 2, &spill};
  LoadReport report;
  LoadProgress progress;
  auto residents = Streamer(plan, session.index(), *device, *encoder, ledger, load)
                       .load_all(report, progress, {});
  TileStream stream(plan, session.index(), *device, *encoder, ledger, report.amax, load, {});
  one_pass(plan, stream);
  one_pass(plan, stream);
  return stream.report();
}

TEST_F(SpillTest, ADiskThatFailsLeavesNothingBehind) {
  Session session(options());
  QuantizeRequest quantize = session.options().quantize;
  ReadPlan all = lay_out(session.model(), session.index(), quantize);
  ReadPlan plan = compile(session.model(), session.index(), quantize, {256 * KiB, MiB},
                          choose_placement(all, {0}));
  SpillKey key{fs::canonical(model()), "fp8_per_channel", {}};
  SpillOptions spill_options{{cache()}, {}, false};
  struct Case {
    FullDisk disk;
    bool works = false;
  };
  std::vector<std::unique_ptr<Case>> cases;
  auto add = [&](int writes, int allocate, int sync, int rename, bool works = false) {
    cases.push_back(std::unique_ptr<Case>(new Case{{writes, allocate, sync, rename}, works}));
  };
  add(0, 0, 0, 0);
  add(3, 0, 0, 0);
  add(100, 0, 0, 0);
  add(1 << 20, ENOSPC, 0, 0);
  add(1 << 20, 0, EIO, 0);
  add(1 << 20, 0, 0, EACCES);
  add(1 << 20, 0, 0, 0, true);
  for (const auto& c : cases) {
    Ledger ledger;
    Spill spill(plan, session.index(), key, spill_options, ledger, c->disk);
    EXPECT_EQ(two_passes(session, plan, spill).spilled_bytes > 0, c->works);
    EXPECT_EQ(spill.ready(), c->works);
    EXPECT_EQ(list_spill_files(cache()).size(), c->works ? 1u : 0u);
  }
}

// A disk that has nothing but the spill files.
class SmallDisk final : public io::SystemCalls {
 public:
  SmallDisk(fs::path directory, uint64_t bytes) : directory_(std::move(directory)), bytes_(bytes) {}
  uint64_t free_bytes(const char*) const override {
    uint64_t free = bytes_;
    for (const SpillFileInfo& f : list_spill_files(directory_)) free -= std::min(free, f.bytes);
    return free;
  }

 private:
  fs::path directory_;
  uint64_t bytes_;
};

TEST_F(SpillTest, AFileThatFillsItsDiskIsReused) {
  Session session(options());
  QuantizeRequest quantize = session.options().quantize;
  ReadPlan all = lay_out(session.model(), session.index(), quantize);
  ReadPlan plan = compile(session.model(), session.index(), quantize, {256 * KiB, MiB},
                          choose_placement(all, {0}));
  SpillKey key{fs::canonical(model()), "fp8_per_channel", {}};
  SmallDisk disk(cache(), spill_layout(plan).file_bytes() * 3 / 4);
  SpillOptions unlimited{{cache()}, "1GiB", false};
  for (const char* outcome : {"written", "reused", "reused"}) {
    Ledger ledger;
    Spill spill(plan, session.index(), key, unlimited, ledger, disk);
    two_passes(session, plan, spill);
    EXPECT_EQ(spill.report().outcome, outcome);
    EXPECT_GT(spill.report().bytes, spill_layout(plan).file_bytes() / 2);
  }
}

TEST_F(SpillTest, ThePlanKnowsItsLimit) {
  SessionOptions o = options();
  Session unlimited(o);
  MemoryPlan all = unlimited.smallest(shape(unlimited));
  o.spill.limit = std::to_string(100 * KiB);
  Session limited(o);
  MemoryPlan some = limited.smallest(shape(limited));
  EXPECT_EQ(some.peak() - some.runtime, all.peak() - all.runtime);
  EXPECT_GT(some.sweep_bytes, all.sweep_bytes);
}

TEST_F(SpillTest, AnotherBudgetsChoiceIsUsedWhereItHelps) {
  Session session(options());
  QuantizeRequest quantize = session.options().quantize;
  auto streaming = [&](const Placement& placement) {
    return compile(session.model(), session.index(), quantize, {256 * KiB, MiB}, placement);
  };
  Placement most = choose_placement(lay_out(session.model(), session.index(), quantize), {0});
  SpillKey key{fs::canonical(model()), "fp8_per_channel", {}};
  ReadPlan plan = streaming(most);
  SpillOptions half{{cache()}, std::to_string(spill_layout(plan).file_bytes() / 2), false};
  Ledger ledger;
  std::vector<bool> held(most.size());
  {
    Spill spill(plan, session.index(), key, half, ledger);
    two_passes(session, plan, spill);
    ASSERT_EQ(spill.report().outcome, "written");
    for (uint32_t t = 0; t < plan.tensors.size(); ++t)
      if (spill.has(t)) held[plan.tensors[t].param] = true;
  }
  Placement fewer = most, others = most;
  size_t smallest = 0;
  for (size_t p = 0; p < held.size(); ++p)
    if (held[p] && (!held[smallest] || plan.params[p].bytes < plan.params[smallest].bytes))
      smallest = p;
  fewer[smallest] = Tier::device;
  for (size_t p = 0; p < others.size(); ++p)
    if (held[p]) others[p] = Tier::device;
  {
    ReadPlan now = streaming(fewer);
    Spill spill(now, session.index(), key, half, ledger);
    EXPECT_EQ(spill.report().outcome, "reused");
    for (uint32_t t = 0; t < now.tensors.size(); ++t)
      EXPECT_EQ(spill.has(t), held[now.tensors[t].param]);
    EXPECT_GT(two_passes(session, now, spill).spilled_bytes, 0u);
  }
  ReadPlan now = streaming(others);
  Spill spill(now, session.index(), key, half, ledger);
  EXPECT_EQ(spill.state(), Spill::State::filling);
  two_passes(session, now, spill);
  EXPECT_EQ(spill.report().outcome, "written");
}

}  // namespace
}  // namespace sluice
