// The cache of experts: the same bits whatever it holds, nothing read for what it has, and no
// result of a source that fails meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/system_calls.h"
#include "src/base/error.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/placed.h"
#include "tests/support/checkpoint.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

constexpr int64_t kExpertPrompt = 11, kExpertSteps = 5;

ModelOptions expert_options(const std::filesystem::path& model) {
  ModelOptions options;
  options.model = model;
  options.threads = 2;
  options.place = parse_place_rules("*=cached");  // what is no expert's is on disk
  return options;
}

RunShape expert_shape(const Planner& planner) {
  return planner.run_shape(kExpertPrompt + kExpertSteps, kExpertPrompt, 1);
}

// Logits of the prompt's end and of some steps after it, as bytes.
std::string expert_outcome(LoadedModel& loaded, int64_t prompt = kExpertPrompt, int32_t first = 7) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kExpertPrompt; ++i)
    ids.push_back((i * 131 + first) %
                  static_cast<int32_t>(loaded.planner().checkpoint().spec().vocab_size));
  return test::logits_bytes(loaded.runner(), std::span(ids).first(static_cast<size_t>(prompt)),
                            std::span(ids).first(kExpertSteps));
}

std::string resident_expert_outcome(ModelOptions options, int64_t prompt = kExpertPrompt,
                                    int32_t first = 7) {
  options.place = {};
  test::Ready ready(options, expert_shape);
  EXPECT_FALSE(ready.model.memory_plan().streams());
  return expert_outcome(ready.model, prompt, first);
}

uint64_t slots_of(const ReadPlan& plan, double share) {
  return static_cast<uint64_t>(share * static_cast<double>(plan.experts.size()));
}

// Bytes beside what the process holds with which the cache has slots for a share of the experts.
uint64_t room_for_slots(const ModelOptions& options, double share) {
  Planner planner(options);
  const RunShape shape = expert_shape(planner);
  const MemoryPlan smallest = planner.smallest(shape);
  auto slots = [&](uint64_t room) {
    return planner.plan_within(shape, smallest.runtime + room, options.quantize).expert_slots;
  };
  uint64_t few = smallest.needed() - smallest.runtime, enough = GiB;
  const MemoryPlan plan = planner.plan_within(shape, UINT64_MAX, options.quantize);
  const uint64_t wanted = slots_of(planner.read_plan_for(plan, options.quantize), share);
  if (wanted == 0) return few;
  while (enough - few > 4 * KiB) {
    const uint64_t middle = (few + enough) / 2;
    (slots(middle) < wanted ? few : enough) = middle;
  }
  return enough;
}

// A loaded model with slots for about a share of the experts, in about the least memory that has
// them. What the process itself holds changes from planner to planner, so room is added in steps.
std::unique_ptr<test::Ready> with_slots(const ModelOptions& options, double share) {
  for (uint64_t room = room_for_slots(options, share);; room += 256 * KiB) {
    test::PlacedModel placed = test::placed(options, room, expert_shape);
    const ReadPlan& read = *placed.placed->read;
    if (read.expert_slots < slots_of(read, share)) continue;
    return std::make_unique<test::Ready>(std::move(placed));
  }
}

// Shares of the experts that have slots. A sanitized build looks for what one of them shows.
std::vector<double> shares() {
  return test::is_brief() ? std::vector{0.15} : std::vector{0.0, 0.15, 1.0};
}

// The cache has been met. The least memory has few slots, or none.
void expect_use(const ExpertCounts& counts, double share) {
  EXPECT_EQ(counts.uses > 0, counts.slots > 0);
  if (share == 0) return;
  EXPECT_GT(counts.hits, 0u);
  EXPECT_GT(counts.hit_bytes, 0u);
  EXPECT_LT(counts.hits, counts.uses);
}

uint64_t bytes_of_units(const LoadedModel& loaded) {
  uint64_t sum = 0;
  const StreamReport report = loaded.stream_report().value();
  for (const UnitStalls& u : report.units) sum += u.bytes;
  return sum;
}

// Two prompts in turn, so that experts of the one take the slots of the other's.
TEST(ExpertCache, SameBitsForEveryNumberOfSlots) {
  for (const char* model : {"tools/demo-moe-model", "tests/data/models/qwen3_5_moe"}) {
    SCOPED_TRACE(model);
    const ModelOptions options = expert_options(test::source_dir() / model);
    const bool is_large = std::string_view(model).starts_with("tools");  // of small slots
    const std::string expected = resident_expert_outcome(options, 2);
    const std::string other = resident_expert_outcome(options, 3, 40);
    for (double share : shares()) {
      SCOPED_TRACE(share);
      const std::unique_ptr<test::Ready> ready = with_slots(options, share);
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(expert_outcome(ready->model, 2), expected);
        EXPECT_EQ(expert_outcome(ready->model, 3, 40), other);
      }
      EXPECT_LE(ready->planner.machine().ledger().peak(Place::host),
                ready->model.memory_plan().peak());
      const ExpertCounts counts = ready->model.stream_report()->experts;
      const uint64_t least = slots_of(ready->model.read_plan(), share);
      ASSERT_FALSE(ready->model.read_plan().experts.empty());
      EXPECT_EQ(counts.slots, ready->model.read_plan().expert_slots);
      EXPECT_GE(counts.slots, least);
      expect_use(counts, share);
      // A sanitized process holds more than it plans, so that it gets more slots than it asks for.
      if (is_large && share == 0.15 && !test::kSanitized) {
        EXPECT_GT(counts.kept, counts.slots) << "others took a slot";
      }
    }
  }
}

// With a slot for every expert, a second run of the same tokens reads none of them.
TEST(ExpertCache, HitsReadNothing) {
  ModelOptions options = expert_options(test::source_dir() / "tests/data/models/mixtral");
  options.place = parse_place_rules("experts=cached");
  test::Ready ready(options, expert_shape);
  LoadedModel& loaded = ready.model;
  ASSERT_EQ(loaded.read_plan().expert_slots, loaded.read_plan().experts.size());
  const std::string first = expert_outcome(loaded);
  const uint64_t read = bytes_of_units(loaded);
  const ExpertCounts before = loaded.stream_report()->experts;
  EXPECT_GT(read, 0u);
  EXPECT_EQ(before.kept, before.uses - before.hits) << "each is read once";
  EXPECT_EQ(expert_outcome(loaded), first);
  EXPECT_EQ(bytes_of_units(loaded), read);
  const ExpertCounts after = loaded.stream_report()->experts;
  EXPECT_EQ(after.hits - before.hits, after.uses - before.uses);
}

// Later passes and runs read from the spill what a run has encoded, though experts are missing;
// these are added as they are met.
TEST(ExpertCache, SpillOfExpertsIsUsedAsFarAsItGoesAndGrows) {
  test::TempDir dir;
  ModelOptions options = expert_options(test::source_dir() / "tests/data/models/glm4_moe");
  options.quantize.scheme = *find_quant_scheme("int8");
  const std::string expected = resident_expert_outcome(options, 1);
  const std::string others = resident_expert_outcome(options, 3, 40);
  options.spill.directories = {dir.path() / "spill"};
  struct Run {
    int32_t first;
    const char* outcome;
    bool reads_spill, writes;
  };
  for (const Run& run :
       {Run{7, "growing", true, true}, Run{7, "reused", true, false}, Run{40, "reused", true, true},
        Run{40, "reused", true, false}, Run{7, "reused", true, false}}) {
    const std::unique_ptr<test::Ready> ready = with_slots(options, 0);
    EXPECT_EQ(expert_outcome(ready->model, run.first == 7 ? 1 : 3, run.first),
              run.first == 7 ? expected : others);
    const Spill::Report report = ready->model.spill()->report();
    EXPECT_EQ(report.outcome, run.outcome);
    EXPECT_EQ(report.written > 0, run.writes);
    EXPECT_EQ(ready->model.stream_report()->spilled_bytes > 0, run.reads_spill);
    ready->model.release();
  }
}

// A copy of the checkpoint that is cut short in the middle of it: the other one has the rest of an
// expert's rows.
TEST(ExpertCache, GoesOnWithoutACopyThatFails) {
  const std::filesystem::path model = test::source_dir() / "tests/data/models/mixtral";
  test::TempDir dir, mirror;
  std::filesystem::copy(model, dir.path(), std::filesystem::copy_options::recursive);
  std::filesystem::copy(dir.path() / "model.safetensors", mirror.path() / "model.safetensors");
  ModelOptions options = expert_options(dir.path());
  const std::string expected = resident_expert_outcome(options);
  options.mirrors = {mirror.path()};
  for (double share : {0.0, 0.5}) {
    const std::filesystem::path file = mirror.path() / "model.safetensors";
    const std::string bytes = test::read_file(file);
    const std::unique_ptr<test::Ready> ready = with_slots(options, share);
    EXPECT_EQ(expert_outcome(ready->model), expected);
    std::filesystem::resize_file(file, bytes.size() / 2);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(expert_outcome(ready->model), expected);
    test::write_file(file, bytes);
  }
}

// Disturbs reads that reach into a range, from arm() on.
class ExpertFaults final : public io::SystemCalls {
 public:
  enum class Kind { none, error, shorter };

  explicit ExpertFaults(std::pair<uint64_t, uint64_t> range)
      : begin_(range.first), end_(range.second) {}
  void arm(Kind kind) {
    kind_ = kind;
    met_ = 0;
  }
  int met() const { return met_; }

  int64_t pread(int fd, std::byte* to, size_t length, uint64_t offset) const override {
    return disturb(to, length, offset, SystemCalls::pread(fd, to, length, offset));
  }
  int completion(std::byte* to, size_t length, uint64_t offset, int result) const override {
    return static_cast<int>(disturb(to, length, offset, result));
  }

 private:
  int64_t disturb(std::byte* to, size_t length, uint64_t offset, int64_t result) const {
    const bool is_met = result > 1 && offset < end_ && begin_ < offset + length;
    if (kind_ == Kind::none || !is_met) return result;
    if (kind_ == Kind::shorter && met_ % 2 == 1) {  // then the rest comes
      ++met_;
      return result;
    }
    ++met_;
    std::memset(to + result / 2, 0xEE, static_cast<size_t>(result - result / 2));
    return kind_ == Kind::error ? -EIO : result / 2;
  }

  const uint64_t begin_, end_;  // in the file
  std::atomic<Kind> kind_{Kind::none};
  mutable std::atomic<int> met_{0};
};

// Returns the bytes of the first layer's experts in the checkpoint's first file: begin, end.
std::pair<uint64_t, uint64_t> first_experts(const ModelOptions& options) {
  Planner planner(options);
  std::pair<uint64_t, uint64_t> range{UINT64_MAX, 0};
  for (const io::StoredTensor& t : planner.checkpoint().index().tensors()) {
    if (t.name.find("layers.0.mlp.experts.") == std::string::npos) continue;
    EXPECT_EQ(t.file, 0u);
    range = {std::min(range.first, t.offset), std::max(range.second, t.offset + t.bytes)};
  }
  EXPECT_LT(range.first, range.second);
  return range;
}

std::string error_of(LoadedModel& loaded, int64_t prompt, int32_t first) {
  try {
    expert_outcome(loaded, prompt, first);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::runtime);
    return e.what();
  }
  return "none";
}

// A step whose read fails ends with one sentence. What the slot has of the expert then is not
// believed: the same model gives the right bits, once the disk does.
TEST(ExpertCache, NothingIsBelievedOfAReadThatFailed) {
  ModelOptions options = expert_options(test::source_dir() / "tools/demo-moe-model");
  const std::string expected = resident_expert_outcome(options, 2);
  const std::string other = resident_expert_outcome(options, 3, 40);
  ExpertFaults faults(first_experts(options));
  options.calls = &faults;
  for (io::ReaderKind reader : {io::ReaderKind::automatic, io::ReaderKind::pread}) {
    for (double share : shares()) {
      SCOPED_TRACE(share);
      options.reader = reader;
      const std::unique_ptr<test::Ready> ready = with_slots(options, share);
      for (int round = 0; round < (test::is_brief() ? 1 : 3); ++round) {
        faults.arm(ExpertFaults::Kind::error);
        const std::string error = error_of(ready->model, 2, 7);
        EXPECT_NE(error.find("cannot be read at offset"), std::string::npos) << error;
        EXPECT_EQ(error.find('\n'), std::string::npos);
        faults.arm(ExpertFaults::Kind::none);
        EXPECT_EQ(expert_outcome(ready->model, 3, 40), other);
        EXPECT_EQ(expert_outcome(ready->model, 2), expected);
      }
      expect_use(ready->model.stream_report()->experts, share);
    }
  }
}

TEST(ExpertCache, ShortReadsAreCompleted) {
  ModelOptions options = expert_options(test::source_dir() / "tools/demo-moe-model");
  const std::string expected = resident_expert_outcome(options, 2);
  ExpertFaults faults(first_experts(options));
  options.calls = &faults;
  for (double share : shares()) {
    const std::unique_ptr<test::Ready> ready = with_slots(options, share);
    faults.arm(ExpertFaults::Kind::shorter);
    for (int round = 0; round < 2; ++round) EXPECT_EQ(expert_outcome(ready->model, 2), expected);
    EXPECT_GT(faults.met(), 0);
    EXPECT_GT(ready->model.stream_report()->io.retries, 0u);
    faults.arm(ExpertFaults::Kind::none);
  }
}

// Flips a bit of each read of a spill file, by the reader that asks for one file at a time.
class SpillFlips final : public io::SystemCalls {
 public:
  void arm(bool flips) { flips_ = flips; }

  int64_t pread(int fd, std::byte* to, size_t length, uint64_t offset) const override {
    const int64_t result = SystemCalls::pread(fd, to, length, offset);
    const auto file = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
    if (flips_ && result > 0 && file.parent_path().filename() == "spill")
      to[result / 2] ^= std::byte{0x10};
    return result;
  }

 private:
  std::atomic<bool> flips_ = false;
};

// Spilled weights have checksums: a flipped bit costs a read of the checkpoint, no wrong result.
TEST(ExpertCache, AFlippedBitOfTheSpillIsNoticed) {
  test::TempDir dir;
  ModelOptions options = expert_options(test::source_dir() / "tests/data/models/glm4_moe");
  options.quantize.scheme = *find_quant_scheme("int8");
  options.reader = io::ReaderKind::pread;
  const std::string expected = resident_expert_outcome(options, 1);
  options.spill.directories = {dir.path() / "spill"};
  for (double share : {0.0, 0.5}) {
    options.calls = nullptr;
    ASSERT_EQ(expert_outcome(with_slots(options, share)->model, 1), expected) << "writes the spill";
    SpillFlips flips;
    options.calls = &flips;
    const std::unique_ptr<test::Ready> ready = with_slots(options, share);
    ASSERT_TRUE(ready->model.spill()->ready());
    flips.arm(true);
    EXPECT_EQ(expert_outcome(ready->model, 1), expected);
    EXPECT_FALSE(ready->model.spill()->ready());
    flips.arm(false);
    EXPECT_EQ(expert_outcome(ready->model, 1), expected);
  }
}

}  // namespace
}  // namespace sluice
