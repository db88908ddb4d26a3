// The cache of experts: the same bits whatever it holds, nothing read for what it has, and no
// result of a source that fails meanwhile.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/session.h"
#include "tests/engine/placed.h"
#include "tests/support/checkpoint.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

constexpr int64_t kExpertPrompt = 11, kExpertSteps = 5;

SessionOptions expert_options(const std::filesystem::path& model) {
  SessionOptions options;
  options.model = model;
  options.threads = 2;
  options.place = parse_place_rules("*=cached");  // what is no expert's is on disk
  return options;
}

RunShape expert_shape(const Session& session) {
  return session.run_shape(kExpertPrompt + kExpertSteps, kExpertPrompt, 1);
}

// Logits of the prompt's end and of some steps after it, as bytes.
std::string expert_outcome(Session& session, int64_t prompt = kExpertPrompt, int32_t first = 7) {
  Runner& runner = session.runner();
  Sequence sequence = runner.new_sequence();
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kExpertPrompt; ++i)
    ids.push_back((i * 131 + first) % static_cast<int32_t>(session.spec().vocab_size));
  std::string bytes;
  auto keep = [&](Tensor logits) {
    bytes.append(reinterpret_cast<const char*>(logits.row<float>(0)),
                 static_cast<size_t>(logits.cols) * sizeof(float));
  };
  const auto asked = std::span(ids).first(static_cast<size_t>(prompt));
  keep(runner.logits(runner.prefill(sequence, asked, {})));
  for (int64_t i = 0; i < kExpertSteps; ++i) {
    const auto id = std::span(ids).subspan(static_cast<size_t>(i), 1);
    keep(runner.logits(runner.step(sequence, id, prompt + i + 1)));
  }
  return bytes;
}

std::string resident_expert_outcome(SessionOptions options, int64_t prompt = kExpertPrompt,
                                    int32_t first = 7) {
  options.place = {};
  Session session(options);
  EXPECT_FALSE(session.place(expert_shape(session)).streams());
  LoadProgress progress;
  session.load(progress, {});
  return expert_outcome(session, prompt, first);
}

// A loaded session with slots for about a share of the experts, in the least memory that has them.
std::unique_ptr<Session> with_slots(const SessionOptions& options, double share) {
  Session session(options);
  const RunShape shape = expert_shape(session);
  const auto [plan, read] = session.what_if(shape, UINT64_MAX, options.quantize);
  const auto slots = static_cast<uint64_t>(share * static_cast<double>(read.experts.size()));
  const uint64_t more = slots > 0 ? slots * (read.expert_slot_bytes + 64) + 256 * KiB : 0;
  auto placed = test::placed(options, test::least_room(options, expert_shape) + more, expert_shape);
  LoadProgress progress;
  placed->load(progress, {});
  return placed;
}

uint64_t bytes_of_units(const Session& session) {
  uint64_t sum = 0;
  const StreamReport report = session.stream_report().value();
  for (const UnitStalls& u : report.units) sum += u.bytes;
  return sum;
}

TEST(ExpertCache, SameBitsForEveryNumberOfSlots) {
  for (const char* model : {"mixtral", "qwen3_5_moe"}) {
    SCOPED_TRACE(model);
    const SessionOptions options = expert_options(test::source_dir() / "tests/data/models" / model);
    const std::string expected = resident_expert_outcome(options);
    for (double share : {0.0, 0.3, 0.7, 1.0}) {
      SCOPED_TRACE(share);
      const std::unique_ptr<Session> session = with_slots(options, share);
      ASSERT_FALSE(session->read_plan().experts.empty());
      EXPECT_EQ(expert_outcome(*session), expected);
      EXPECT_EQ(expert_outcome(*session), expected);
      EXPECT_LE(session->ledger().peak(Place::host), session->memory_plan().peak());
      const ExpertCounts counts = session->stream_report()->experts;
      EXPECT_EQ(counts.slots, session->read_plan().expert_slots);
      EXPECT_LE(counts.hits, counts.uses);
      EXPECT_EQ(counts.hits > 0, counts.hit_bytes > 0);
    }
  }
}

// With a slot for every expert, a second run of the same tokens reads none of them.
TEST(ExpertCache, HitsReadNothing) {
  SessionOptions options = expert_options(test::source_dir() / "tests/data/models/mixtral");
  options.place = parse_place_rules("experts=cached");
  Session session(options);
  session.place(expert_shape(session));
  ASSERT_EQ(session.read_plan().expert_slots, session.read_plan().experts.size());
  LoadProgress progress;
  session.load(progress, {});
  const std::string first = expert_outcome(session);
  const uint64_t read = bytes_of_units(session);
  const ExpertCounts before = session.stream_report()->experts;
  EXPECT_GT(read, 0u);
  EXPECT_EQ(before.kept, before.uses - before.hits) << "each is read once";
  EXPECT_EQ(expert_outcome(session), first);
  EXPECT_EQ(bytes_of_units(session), read);
  const ExpertCounts after = session.stream_report()->experts;
  EXPECT_EQ(after.hits - before.hits, after.uses - before.uses);
}

// Later passes and runs read from the spill what a run has encoded, though experts are missing;
// these are added as they are met.
TEST(ExpertCache, SpillOfExpertsIsUsedAsFarAsItGoesAndGrows) {
  test::TempDir dir;
  SessionOptions options = expert_options(test::source_dir() / "tests/data/models/glm4_moe");
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
    const std::unique_ptr<Session> session = with_slots(options, 0);
    EXPECT_EQ(expert_outcome(*session, run.first == 7 ? 1 : 3, run.first),
              run.first == 7 ? expected : others);
    const Spill::Report report = session->spill()->report();
    EXPECT_EQ(report.outcome, run.outcome);
    EXPECT_EQ(report.written > 0, run.writes);
    EXPECT_EQ(session->stream_report()->spilled_bytes > 0, run.reads_spill);
    session->release();
  }
}

// A copy of the checkpoint that is cut short in the middle of it: the other one has the rest of an
// expert's rows.
TEST(ExpertCache, GoesOnWithoutACopyThatFails) {
  const std::filesystem::path model = test::source_dir() / "tests/data/models/mixtral";
  test::TempDir dir, mirror;
  std::filesystem::copy(model, dir.path(), std::filesystem::copy_options::recursive);
  std::filesystem::copy(dir.path() / "model.safetensors", mirror.path() / "model.safetensors");
  SessionOptions options = expert_options(dir.path());
  const std::string expected = resident_expert_outcome(options);
  options.mirrors = {mirror.path()};
  for (double share : {0.0, 0.5}) {
    const std::filesystem::path file = mirror.path() / "model.safetensors";
    const std::string bytes = test::read_file(file);
    const std::unique_ptr<Session> session = with_slots(options, share);
    EXPECT_EQ(expert_outcome(*session), expected);
    std::filesystem::resize_file(file, bytes.size() / 2);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(expert_outcome(*session), expected);
    test::write_file(file, bytes);
  }
}

}  // namespace
}  // namespace sluice
