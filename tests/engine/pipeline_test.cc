// Models whose layers several ranks divide: each rank is a thread with a planner of its own, and
// what they compute has the bits of one.
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "tests/engine/on_ranks.h"
#include "tests/support/checkpoint.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::How;
using test::Outcome;

int64_t layers_of(const fs::path& model) {
  return std::ssize(build_model(test::model_in(model), {}).spec.layers);
}

class PipelineTest : public testing::TestWithParam<fs::path> {};

TEST_P(PipelineTest, HasTheBitsOfOneRank) {
  const test::GoldenFile file(GetParam());
  const test::Golden golden = file.golden(file.prompts() - 1);
  const auto more = std::ssize(golden.greedy);
  const How one{.dtype = DtypeChoice::f32, .threads = 1};
  const Outcome whole = test::run_on_ranks(GetParam(), golden.ids, more, 1, one);
  const int64_t layers = layers_of(GetParam());
  int done = 0;
  for (int stages : {2, 3}) {
    if (stages > layers) continue;
    SCOPED_TRACE(testing::Message() << stages << " ranks");
    How how = one;
    how.stages = stages;
    how.chunk = stages == 2 ? one.chunk : 3;
    Outcome outcome;
    const auto fault = test::try_ranks(GetParam(), stages, how, [&](test::OnRank& rank) {
      outcome = test::lead_prompt(rank, golden.ids, more, how.chunk);
    });
    if (fault) {  // layers that share their keys
      EXPECT_NE(std::string(fault->what()).find("cannot be divided so often"), std::string::npos)
          << fault->what();
      continue;
    }
    ++done;
    EXPECT_EQ(outcome.logits, whole.logits);
    EXPECT_EQ(outcome.greedy, whole.greedy);
    const test::TempDir spill;  // for what is stored [inputs, outputs]
    how.place = "layers=disk";
    how.spill = spill.path();
    if (stages > 2) continue;
    EXPECT_EQ(test::run_on_ranks(GetParam(), golden.ids, 1, stages, how).logits, whole.logits);
  }
  EXPECT_TRUE(done > 0 || layers < 2);
}

INSTANTIATE_TEST_SUITE_P(Bundled, PipelineTest, testing::ValuesIn(test::bundled_models()),
                         test::golden_name);

class Pipeline : public testing::Test {
 protected:
  Pipeline() {
    test::Random random("Pipeline");
    Json config = test::tiny_config();
    config["hidden_size"] = 256;
    config["intermediate_size"] = 512;
    config["num_hidden_layers"] = 12;
    config["vocab_size"] = 64;
    test::write_checkpoint(dir_.path(), config, test::tiny_tensors(config, random));
  }
  fs::path model() const { return dir_.path(); }

 private:
  test::TempDir dir_;
};

// Two stages of two ranks each have the bits of two ranks.
TEST(Pipelines, MayHaveStagesOfSeveralRanks) {
  for (const char* name : {"llama_rope_dynamic", "qwen3_5_moe", "gpt2_noprefix"}) {
    SCOPED_TRACE(name);
    const fs::path model = test::bundled_model(name);
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6};
    How how{.dtype = DtypeChoice::f32, .threads = 1};
    const Outcome two = test::run_on_ranks(model, prompt, 6, 2, how);
    how.stages = 2;
    how.chunk = 3;
    const Outcome four = test::run_on_ranks(model, prompt, 6, 4, how);
    EXPECT_EQ(four.logits, two.logits);
    EXPECT_EQ(four.greedy, two.greedy);
  }
  How how;
  how.stages = 2;
  const auto fault =
      test::try_ranks(test::bundled_model("llama_tied"), 3, how, [](test::OnRank&) { FAIL(); });
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind(), ErrorKind::usage);
}

// Each rank reads its layers alone, and its part of the KV cache has these.
TEST_F(Pipeline, RanksHaveTheirLayers) {
  uint64_t whole = 0, page = 0;
  for (int stages : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << stages << " ranks");
    How how;
    how.stages = stages;
    int64_t next = 0;
    uint64_t sum = 0, pages = 0;
    const auto fault = test::try_ranks(
        model(), stages, how,
        [&](test::OnRank& rank) {
          const LoadedModel& loaded = rank.load(rank.planner.run_shape(64, 8, 1));
          if (stages == 1) whole = loaded.report().io.bytes_requested;
          for (const RankShare& load : loaded.rank_shares()) {
            EXPECT_EQ(load.layers.begin, next);
            EXPECT_LE(load.layers.count, 12 / stages + 1);
            next += load.layers.count;
          }
        },
        [&](test::OnRank& rank, int) {
          sum += rank.model->report().io.bytes_requested;
          pages += kv_layout(*rank.planner.checkpoint().model().root, rank.model->placed()->shape)
                       .page_bytes();
        });
    ASSERT_FALSE(fault) << fault->what();
    EXPECT_LE(static_cast<double>(sum), 1.02 * static_cast<double>(whole));
    if (stages == 1) page = pages;
    EXPECT_EQ(pages, page);
    EXPECT_EQ(next, stages == 1 ? 0 : 12);
  }
}

// The second stage, which begins with the first part of a prompt only when the second part has
// come.
class WaitingStage final : public test::ThreadGroup {
 public:
  WaitingStage(test::Meeting& meeting) : ThreadGroup({1, 2}, meeting), meeting_(meeting) {}
  void receive(int from, std::span<std::byte> bytes) const override {
    ThreadGroup::receive(from, bytes);
    if (std::exchange(has_waited_, true)) return;
    std::unique_lock lock(meeting_.mutex);
    const auto& next = meeting_.mail[{from, 1}];
    EXPECT_TRUE(meeting_.arrived.wait_for(lock, kHangs, [&] { return !next.empty(); }));
  }

 private:
  static constexpr std::chrono::minutes kHangs{2};
  test::Meeting& meeting_;
  mutable bool has_waited_ = false;
};

// The logits after a prompt, which is computed in steps of at most three tokens.
std::vector<float> logits_after(test::OnRank& rank, const std::vector<int32_t>& prompt) {
  constexpr int64_t kRows = 3;
  Runner& runner = rank.load(rank.planner.run_shape(std::ssize(prompt), kRows, 1)).runner();
  EXPECT_LE(runner.max_rows(), kRows);
  Sequence sequence = runner.new_sequence(std::ssize(prompt));
  const Tensor logits = runner.logits(runner.prefill(sequence, prompt, {}));
  return {logits.row<float>(0), logits.row<float>(0) + logits.cols};
}

TEST_F(Pipeline, AStageWorksWhileTheNextOneDoes) {
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6};
  How how{.threads = 1};
  std::vector<float> expected;
  test::on_ranks(model(), 1, how,
                 [&](test::OnRank& rank) { expected = logits_after(rank, prompt); });
  how.stages = 2;
  test::Meeting meeting(2);
  std::jthread second([&] {
    ModelOptions options = test::options_for(model(), how);
    options.ranks = std::make_shared<WaitingStage>(meeting);
    test::OnRank rank(std::move(options));
    follow(rank.planner, rank.model, {});
  });
  ModelOptions options = test::options_for(model(), how);
  options.ranks = std::make_shared<test::ThreadGroup>(Rank{0, 2}, meeting);
  test::OnRank rank(std::move(options));
  EXPECT_EQ(logits_after(rank, prompt), expected);
}

TEST_F(Pipeline, ARankWithMoreMemoryHasMoreLayers) {
  std::vector<Share> layers;
  test::Meeting meeting(2);
  std::vector<std::jthread> ranks;
  std::mutex mutex;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      ModelOptions options = test::options_for(model(), {});
      options.ranks = std::make_shared<test::ThreadGroup>(Rank{r, 2}, meeting);
      options.pipeline_parallel_size = 2;
      options.memory = r == 0 ? "1GiB" : "3GiB";
      Planner planner(std::move(options));
      std::optional<LoadedModel> followed;
      if (r == 1) follow(planner, followed, {});
      std::lock_guard lock(mutex);
      if (r == 0)
        for (const StageLayers& stage : planner.checkpoint().model().root->stage().all)
          layers.push_back(stage.layers);
    });
  }
  ranks.clear();
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0], (Share{0, 3}));
  EXPECT_EQ(layers[1], (Share{3, 9}));
}

TEST_F(Pipeline, MoreRanksThanLayersAreRefused) {
  How how;
  how.stages = 13;
  const auto fault = test::try_ranks(model(), 13, how, [](test::OnRank&) { FAIL(); });
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind(), ErrorKind::usage);
  EXPECT_NE(std::string(fault->what()).find("12 layers"), std::string::npos) << fault->what();
}

// Steps of several sequences, a fork, swapped blocks, draft tokens and rows of the result.
TEST_F(Pipeline, FollowsAnEngine) {
  auto run = [&](Planner& planner) {
    RunShape shape = planner.run_shape(400, 60, 4, 4);
    LoadedModel loaded(planner, planner.place(shape));
    Engine engine(loaded.runner(), nullptr, 4);
    std::vector<std::vector<int32_t>> ids = test::run_requests(engine);
    Runner& runner = loaded.runner();
    Sequence sequence = runner.new_sequence();
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
    const Tensor hidden = runner.decode(sequence, prompt);
    std::vector<float> row(static_cast<size_t>(hidden.cols));
    runner.copy_row(hidden.rows_from(1, 4), 2, row);
    return std::pair(ids, row);
  };
  How how{.dtype = DtypeChoice::f32};
  Planner alone(test::options_for(model(), how));
  const auto expected = run(alone);
  how.stages = 3;
  test::on_ranks(model(), 3, how,
                 [&](test::OnRank& rank) { EXPECT_EQ(run(rank.planner), expected); });
}

}  // namespace
}  // namespace sluice
