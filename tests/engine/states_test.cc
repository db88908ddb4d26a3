// Models with states through the engine: beside others, preempted, swapped, with draft tokens,
// forked, and turn after turn of a conversation, each gets what it gets alone.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "src/base/units.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/golden.h"
#include "tests/engine/placed.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

constexpr int64_t kLongestOfStates = 90;  // tokens of a sequence
constexpr int64_t kVocab = 96;

using Ids = std::vector<int32_t>;
using Tokens = std::map<OutputId, Ids>;

class StatesTest : public testing::TestWithParam<const char*> {
 protected:
  // Room for `sequences` of `longest` tokens, and steps of `rows`.
  std::unique_ptr<test::Ready> loaded(int64_t sequences, int64_t rows, const SwapShape& swap = {},
                                      int64_t longest = kLongestOfStates) const {
    ModelOptions options;
    options.model = test::bundled_model(GetParam());
    options.threads = 2;
    options.block_size = 4;
    options.swap = swap;
    return std::make_unique<test::Ready>(options, [&](const Planner& planner) {
      return shape_ = planner.run_shape(sequences * longest, rows, 5, sequences);
    });
  }
  // Costs make computing a block of so small a model slower than reading it from disk.
  static Runner runner(LoadedModel& model, const RunShape& shape) {
    static const SoloGroup alone;
    return {*model.planner().checkpoint().model().root,
            model.planner().machine().ledger(),
            model.memory_plan(),
            shape,
            BlockCosts{100, {0, 0.01, 0.1}, {0, 0.01, 0.1}},
            {alone, alone}};
  }

  mutable RunShape shape_;
  test::Random random_{"states"};
};

Request random_request(test::Random& random) {
  Request r;
  const int64_t prompt = random.between(1, 50);
  const bool common = random.uniform() < 0.5;  // a beginning that others have, too
  for (int64_t i = 0; i < prompt; ++i)
    r.prompt.push_back(
        static_cast<int32_t>(common && i < 30 ? i % 3 + 5 : random.between(3, kVocab - 1)));
  r.max_tokens = random.between(1, kLongestOfStates - prompt);
  r.lookup = random.uniform() < 0.4;
  r.n = random.uniform() < 0.2 ? 3 : 1;
  r.sampling.temperature = r.n > 1 ? 0.8 : 0;
  return r;
}

void collect(Engine& engine, Tokens& tokens) {
  for (const Output& out : engine.step({}))
    if (out.finished) tokens[out.id] = engine.take(out.id).ids;
}

Ids run_alone(Runner& runner, Request request, int64_t index = 0) {
  request.n = 1;
  request.lookup = false;
  request.sampling.seed += static_cast<uint64_t>(index);
  Engine engine(runner, nullptr, 1);
  const OutputId id{engine.add(request), 0};
  while (!engine.idle()) engine.step({});
  return engine.take(id).ids;
}

TEST_P(StatesTest, SameTokensAloneAndTogetherWithPreemptions) {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(random_request(random_));
  Tokens want;
  {
    auto ready = loaded(1, kLongestOfStates);
    for (size_t i = 0; i < requests.size(); ++i)
      for (int64_t k = 0; k < requests[i].n; ++k)
        want[{static_cast<int64_t>(i), k}] = run_alone(ready->model.runner(), requests[i], k);
  }
  test::TempDir disk;
  const std::array<SwapShape, 3> swaps{SwapShape{}, SwapShape{4 * MiB, 0, {}},
                                       SwapShape{0, 4 * MiB, disk.path()}};
  int64_t preemptions = 0, prefixes = 0, restored = 0;
  for (const SwapShape& swap : swaps) {
    auto ready = loaded(2, random_.between(10, 60), swap);
    Runner runner = this->runner(ready->model, shape_);
    Engine engine(runner, nullptr, 10);
    Tokens have;
    for (const Request& r : requests) {
      engine.add(r);
      while (random_.uniform() < 0.5) collect(engine, have);
    }
    while (!engine.idle()) collect(engine, have);
    EXPECT_EQ(have, want);
    preemptions += engine.stats().preemptions;
    prefixes += engine.stats().prefix_tokens;
    restored += engine.stats().blocks.restored;
    EXPECT_TRUE(runner.blocks().idle());
    EXPECT_LE(ready->planner.machine().ledger().peak(Place::host),
              2 * ready->model.predicted_peak());
  }
  RecordProperty("preemptions", static_cast<int>(preemptions));
  RecordProperty("restored", static_cast<int>(restored));
  EXPECT_GT(prefixes, 0);
  EXPECT_GT(preemptions + restored, 0);
}

// Each turn begins with all tokens of the last one, its answer included. The new tokens are
// computed, and less than a block more.
TEST_P(StatesTest, ATurnOfAConversationComputesWhatIsNew) {
  constexpr int64_t kTurns = 20, kNew = 7, kAnswer = 5, kAllTokens = kTurns * (kNew + kAnswer);
  auto ready = loaded(2, 64, {}, kAllTokens + 20);
  Engine engine(ready->model.runner(), nullptr, 1);
  Ids all;
  int64_t known = 0;  // tokens whose states there may be
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    for (int64_t i = 0; i < kNew; ++i)
      all.push_back(static_cast<int32_t>(random_.between(3, kVocab - 1)));
    Request request;
    request.prompt = all;
    request.max_tokens = kAnswer;
    const int64_t found_before = engine.stats().prefix_tokens;
    const OutputId id{engine.add(request), 0};
    while (!engine.idle()) engine.step({});
    const Ids answer = engine.take(id).ids;
    const int64_t found = engine.stats().prefix_tokens - found_before;
    EXPECT_GT(found, known - 4) << "turn " << turn;
    EXPECT_LE(found, known);
    EXPECT_EQ(run_alone(loaded(1, 64, {}, kAllTokens + 20)->model.runner(), request), answer)
        << "turn " << turn;
    all.insert(all.end(), answer.begin(), answer.end());
    known = std::ssize(all) - 1;  // of the last token there is none
  }
  // Another answer: it goes on from the end of a prompt.
  Request request;
  request.prompt.assign(all.begin(), all.end() - kAnswer + 1);
  request.prompt.back() = request.prompt.back() == 7 ? 8 : 7;
  request.max_tokens = 3;
  const int64_t found_before = engine.stats().prefix_tokens;
  engine.add(request);
  while (!engine.idle()) engine.step({});
  EXPECT_GT(engine.stats().prefix_tokens - found_before, std::ssize(all) - kAnswer - 5);
}

// Other continuations of a prompt do not compute it again.
TEST_P(StatesTest, ContinuationsGoOnFromTheEndOfThePrompt) {
  auto ready = loaded(4, 64);
  Request request;
  for (int64_t i = 0; i < 42; ++i)
    request.prompt.push_back(static_cast<int32_t>(random_.between(3, kVocab - 1)));
  request.max_tokens = 5;
  request.n = 3;
  Engine engine(ready->model.runner(), nullptr, 8);
  const int64_t id = engine.add(request);
  while (!engine.idle()) engine.step({});
  EXPECT_EQ(engine.stats().prefix_tokens, 2 * 40);
  const Ids first = engine.take({id, 0}).ids;
  EXPECT_EQ(engine.take({id, 1}).ids, first);  // greedy, all are the same
  EXPECT_EQ(engine.take({id, 2}).ids, first);
}

INSTANTIATE_TEST_SUITE_P(Bundled, StatesTest,
                         testing::Values("qwen3_5", "falcon_h1", "lfm2", "mamba2", "mamba",
                                         "jamba_dense"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace sluice
