// The engine on a thread of its own: what is taken of each request, in whatever parts and whatever
// is added and cancelled beside it, is what it gives alone.
#include "src/engine/engine_loop.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/system_calls.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "tests/engine/small_model.h"

namespace sluice {
namespace {

constexpr int64_t kLongest = 60;  // tokens of a sequence

// Reads fail as long as they are told to.
class FailingReads final : public io::SystemCalls {
 public:
  int64_t pread(int fd, std::byte* to, size_t length, uint64_t offset) const override {
    return fail ? -EIO : SystemCalls::pread(fd, to, length, offset);
  }
  std::atomic<bool> fail = false;
};

// Loads the model with room for `sequences` of the longest.
class EngineLoopTest : public testing::Test {
 protected:
  void load(int64_t sequences, ModelOptions options = {}) {
    options.model = model_.path();
    options.threads = 1;
    options.block_size = 4;
    planner_.emplace(std::move(options));
    RunShape shape = planner_->run_shape(sequences * kLongest, 16, 5);
    shape.sampling_bytes = Sampler::Scratch::bytes(planner_->checkpoint().spec().vocab_size);
    loaded_.emplace(*planner_, planner_->place(shape));
  }

  Request random_request() {
    Request r;
    const int64_t prompt = random_.between(1, 30);
    for (int64_t i = 0; i < prompt; ++i)
      r.prompt.push_back(static_cast<int32_t>(i < 20 ? i % 3 : random_.between(0, 66)));
    r.max_tokens = random_.between(0, kLongest - prompt);
    r.sampling.temperature = random_.uniform() < 0.5 ? 0 : 0.8;
    r.sampling.seed = static_cast<uint64_t>(random_.between(0, 100));
    if (random_.uniform() < 0.3) r.sampling.logprobs = 2;
    r.lookup = random_.uniform() < 0.4;
    r.n = random_.uniform() < 0.2 ? 3 : 1;
    if (random_.uniform() < 0.2) {  // leaves no token after the first
      r.sampling.allowed_token_ids = {5};
      r.sampling.no_repeat_ngram_size = 1;
    }
    return r;
  }

  std::vector<RequestResult> alone(const Request& request) {
    Engine engine(loaded_->runner(), nullptr, 1);
    const int64_t id = engine.add(request);
    while (!engine.idle()) engine.step({});
    std::vector<RequestResult> results;
    for (int64_t i = 0; i < request.n; ++i) results.push_back(engine.take({id, i}));
    return results;
  }

  test::SmallModel model_;
  test::Random random_{"engine loop"};
  FailingReads reads_;  // outlives what reads ahead by it
  std::optional<Planner> planner_;
  std::optional<LoadedModel> loaded_;
  std::atomic<int> shrink_{0};
};

Request of_tokens(int64_t n) {
  Request r;
  r.prompt = {1, 2, 3};
  r.max_tokens = n;
  return r;
}

void wait_for_more(const EngineLoop& loop) {
  pollfd wake{loop.wake_descriptor(), POLLIN, 0};
  ASSERT_EQ(poll(&wake, 1, 600'000), 1) << "nothing has come in ten minutes";
}

// A request as its asker sees it.
struct Asked {
  Request request;
  bool cancelled = false;
  std::vector<StreamPart> got = {};  // of each continuation: its parts together

  bool done() const {
    return cancelled || std::ranges::all_of(got, [](const StreamPart& p) { return !!p.result; });
  }
};

void take_all(EngineLoop& loop, std::map<int64_t, Asked>& asked) {
  for (auto& [id, part] : loop.take()) {
    Asked& of = asked.at(id.request);
    if (of.cancelled) continue;
    StreamPart& got = of.got[static_cast<size_t>(id.index)];
    ASSERT_FALSE(got.result) << "something came after the result";
    got.ids.insert(got.ids.end(), part.ids.begin(), part.ids.end());
    for (TokenLogprobs& t : part.logprobs) got.logprobs.push_back(std::move(t));
    got.result = std::move(part.result);
  }
}

bool all_done(const std::map<int64_t, Asked>& asked) {
  return std::ranges::all_of(asked, [](const auto& a) { return a.second.done(); });
}

void take_until_done(EngineLoop& loop, std::map<int64_t, Asked>& asked) {
  while (!all_done(asked)) {
    ASSERT_NO_FATAL_FAILURE(wait_for_more(loop));
    ASSERT_NO_FATAL_FAILURE(take_all(loop, asked));
  }
}

TEST_F(EngineLoopTest, EachGetsWhatItGetsAlone) {
  load(2);  // where up to 8 want to run
  std::map<int64_t, Asked> asked;
  {
    EngineLoop loop(*loaded_, 8, shrink_);
    for (int i = 0; i < 150; ++i) {
      Asked one{.request = random_request()};
      one.got.resize(static_cast<size_t>(one.request.n));
      const int64_t id = loop.add(one.request);
      asked.emplace(id, std::move(one));
      if (random_.uniform() < 0.3) {  // one of those that came lately, done or not
        const int64_t which = std::max<int64_t>(0, id - random_.between(0, 8));
        loop.cancel(which);
        asked.at(which).cancelled = true;
      }
      if (random_.uniform() < 0.5) take_all(loop, asked);
      if (random_.uniform() < 0.2 && !all_done(asked)) wait_for_more(loop);
    }
    take_until_done(loop, asked);
    EXPECT_EQ(loop.failure(), "");
  }
  EXPECT_TRUE(loaded_->runner().blocks().idle());
  int64_t errors = 0, compared = 0;
  for (const auto& [id, one] : asked) {
    if (one.cancelled) continue;
    const std::vector<RequestResult> want = alone(one.request);
    for (size_t i = 0; i < want.size(); ++i) {
      const StreamPart& got = one.got[i];
      EXPECT_EQ(got.result->ids, want[i].ids) << id << "." << i;
      EXPECT_EQ(got.result->finish_reason, want[i].finish_reason);
      EXPECT_EQ(got.result->error, want[i].error);
      EXPECT_EQ(got.result->logits_hash, want[i].logits_hash);
      EXPECT_EQ(got.ids, want[i].ids);
      EXPECT_EQ(got.logprobs.size(), want[i].logprobs.size());
      errors += want[i].error.empty() ? 0 : 1;
      ++compared;
    }
  }
  EXPECT_GT(errors, 0);
  EXPECT_GT(compared - errors, 50);
}

TEST_F(EngineLoopTest, WhatCanNeverRunIsRefusedByAdd) {
  load(1);
  EngineLoop loop(*loaded_, 2, shrink_);
  Request r = of_tokens(2 * kLongest);
  EXPECT_THROW(loop.add(r), Error);
  r.max_tokens = 5;
  r.prompt = {67};
  EXPECT_THROW(loop.add(r), Error);
}

TEST_F(EngineLoopTest, CancelFreesTheBlocks) {
  load(2);
  EngineLoop loop(*loaded_, 2, shrink_);
  const Request r = of_tokens(kLongest - 3);
  const int64_t id = loop.add(r);
  wait_for_more(loop);
  loop.cancel(id);
  // Another one runs when the first has gone.
  const int64_t other = loop.add(r);
  std::map<int64_t, Asked> asked{{id, {.request = r, .cancelled = true, .got = {{}}}},
                                 {other, {.request = r, .got = {{}}}}};
  take_until_done(loop, asked);
  loop.stop();
  EXPECT_TRUE(loaded_->runner().blocks().idle());
  EXPECT_EQ(asked.at(other).got[0].result->ids, alone(r)[0].ids);
}

// The result of a request that runs now.
RequestResult run_one(EngineLoop& loop, const Request& request) {
  std::map<int64_t, Asked> asked;
  const int64_t id = loop.add(request);
  asked.emplace(id, Asked{.request = request, .got = {{}}});
  take_until_done(loop, asked);
  return asked.at(id).got[0].result.value();
}

TEST_F(EngineLoopTest, AModelThatSleepsHoldsNothingAndWakesAsItWas) {
  load(2);
  const Request r = of_tokens(20);
  EngineLoop loop(*loaded_, 2, shrink_);
  const RequestResult want = run_one(loop, r);
  const uint64_t awake = planner_->machine().ledger().used(Place::host);
  const ModelTask sleep{.kind = ModelTask::Kind::sleep}, wake{.kind = ModelTask::Kind::wake};
  for (int i = 0; i < 2; ++i) {
    loop.perform(sleep);
    loop.perform(sleep);
    EXPECT_TRUE(loop.asleep());
    EXPECT_EQ(loop.status().blocks, 0);
    const MemoryPlan& plan = loaded_->memory_plan();
    EXPECT_LE(planner_->machine().ledger().used(Place::host), awake - plan.weights - plan.kv_cache);
    EXPECT_THROW(loop.add(r), Error);
    EXPECT_THROW(loop.perform({.kind = ModelTask::Kind::exchange, .model = model_.path()}), Error);
    loop.perform(wake);
    loop.perform(wake);
    EXPECT_FALSE(loop.asleep());
    EXPECT_EQ(planner_->machine().ledger().used(Place::host), awake);
    const RequestResult again = run_one(loop, r);
    EXPECT_EQ(again.ids, want.ids);
    EXPECT_EQ(again.logits_hash, want.logits_hash);
  }
  EXPECT_EQ(loop.status().stats.prompt_tokens, 9);
  EXPECT_EQ(loop.failure(), "");
}

TEST_F(EngineLoopTest, AModelThatCannotWakeSleepsOnAndWakesLater) {
  const test::TempDir above;
  ModelOptions options;
  options.swap = {.host_bytes = 0, .disk_bytes = MiB, .directory = above.path() / "swap"};
  std::filesystem::create_directory(options.swap.directory);
  const std::filesystem::path swap = options.swap.directory;
  load(2, std::move(options));
  EngineLoop loop(*loaded_, 2, shrink_);
  const uint64_t want = run_one(loop, of_tokens(20)).logits_hash;
  loop.perform({.kind = ModelTask::Kind::sleep});
  const uint64_t asleep = planner_->machine().ledger().used(Place::host);
  std::filesystem::remove_all(swap);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(loop.perform({.kind = ModelTask::Kind::wake}), Error);
    EXPECT_TRUE(loop.asleep());
    EXPECT_EQ(planner_->machine().ledger().used(Place::host), asleep);
  }
  std::filesystem::create_directory(swap);
  loop.perform({.kind = ModelTask::Kind::wake});
  EXPECT_EQ(run_one(loop, of_tokens(20)).logits_hash, want);
}

TEST_F(EngineLoopTest, ABudgetThatIsLoweredWhileTheModelSleepsHoldsWhenItLoads) {
  load(2);
  ASSERT_FALSE(loaded_->memory_plan().streams());
  EngineLoop loop(*loaded_, 2, shrink_);
  const uint64_t want = run_one(loop, of_tokens(20)).logits_hash;
  const uint64_t loaded = loaded_->report().needed_bytes;
  loop.perform({.kind = ModelTask::Kind::sleep});
  shrink_ = 30;  // to nearly nothing
  loop.perform({.kind = ModelTask::Kind::wake});
  EXPECT_TRUE(loop.status().placed->memory.streams());
  EXPECT_EQ(run_one(loop, of_tokens(20)).logits_hash, want);
  EXPECT_LT(loaded_->report().needed_bytes, loaded);
}

TEST_F(EngineLoopTest, WhatRunsEndsBeforeTheModelSleeps) {
  load(4);
  const Request r = of_tokens(kLongest - 3);
  for (bool abort : {false, true}) {
    EngineLoop loop(*loaded_, 4, shrink_);
    std::map<int64_t, Asked> asked;
    for (int i = 0; i < (abort ? 200 : 8); ++i)
      asked.emplace(loop.add(r), Asked{.request = r, .got = {{}}});
    wait_for_more(loop);
    loop.perform({.kind = ModelTask::Kind::sleep, .abort = abort});
    take_all(loop, asked);
    for (const auto& [id, one] : asked) {
      ASSERT_TRUE(one.done());
      const RequestResult& result = *one.got[0].result;
      EXPECT_TRUE(abort || std::ssize(result.ids) == r.max_tokens);
    }
    EXPECT_EQ(asked.rbegin()->second.got[0].result->finish_reason, abort ? "error" : "length");
    loop.perform({.kind = ModelTask::Kind::wake});
  }
}

TEST_F(EngineLoopTest, WeightsAreExchangedOrStay) {
  load(2);
  const Request r = of_tokens(20);
  EngineLoop loop(*loaded_, 2, shrink_);
  const uint64_t want = run_one(loop, r).logits_hash;
  auto exchange_to = [&](const std::filesystem::path& model) {
    loop.perform({.kind = ModelTask::Kind::exchange, .model = model});
  };
  EXPECT_THROW(exchange_to(model_.path() / "none"), Error);
  EXPECT_FALSE(loop.asleep());
  EXPECT_EQ(run_one(loop, r).logits_hash, want);
  const test::SmallModel other(0, 67, 2);
  exchange_to(other.path());
  const uint64_t exchanged = run_one(loop, r).logits_hash;
  EXPECT_NE(exchanged, want);
  loop.perform({.kind = ModelTask::Kind::sleep});
  loop.perform({.kind = ModelTask::Kind::wake});
  EXPECT_EQ(run_one(loop, r).logits_hash, exchanged);
  exchange_to(model_.path());
  EXPECT_EQ(run_one(loop, r).logits_hash, want);
}

TEST_F(EngineLoopTest, AStopEndsATaskThatWaits) {
  load(2);
  EngineLoop loop(*loaded_, 2, shrink_);
  for (int i = 0; i < 100; ++i) loop.add(of_tokens(kLongest - 3));
  std::thread stops([&] { loop.stop(); });
  try {
    loop.perform({.kind = ModelTask::Kind::sleep});
  } catch (const Error&) {  // the stop was first
  }
  stops.join();
  EXPECT_THROW(loop.perform({.kind = ModelTask::Kind::wake}), Error);
}

TEST_F(EngineLoopTest, AStopEndsWhatHasNotEndedWithAnError) {
  load(2);
  EngineLoop loop(*loaded_, 2, shrink_);
  Request r = of_tokens(kLongest - 3);
  r.n = 2;
  std::map<int64_t, Asked> asked;
  for (int i = 0; i < 200; ++i)
    asked.emplace(loop.add(r), Asked{.request = r, .got = std::vector<StreamPart>(2)});
  loop.stop();
  take_all(loop, asked);
  int64_t stopped = 0;
  for (const auto& [id, one] : asked) {
    ASSERT_TRUE(one.done());
    for (const StreamPart& part : one.got)
      stopped += part.result->error == "the engine has been stopped" ? 1 : 0;
  }
  EXPECT_GT(stopped, 0);
  EXPECT_THROW(loop.add(r), Error);
  EXPECT_EQ(loop.failure(), "");
}

TEST_F(EngineLoopTest, AFaultOfAPassEndsItsRequestsAlone) {
  ModelOptions options;
  options.reader = io::ReaderKind::pread;
  options.place = parse_place_rules("layers=disk");
  options.calls = &reads_;
  load(2, std::move(options));
  ASSERT_TRUE(loaded_->memory_plan().streams());
  EngineLoop loop(*loaded_, 2, shrink_);
  Request r = of_tokens(20);
  r.n = 2;
  const uint64_t want = run_one(loop, of_tokens(20)).logits_hash;
  for (int round = 0; round < 4; ++round) {
    reads_.fail = true;
    std::map<int64_t, Asked> asked;
    asked.emplace(loop.add(r), Asked{.request = r, .got = std::vector<StreamPart>(2)});
    take_until_done(loop, asked);
    for (const StreamPart& part : asked.begin()->second.got) {
      EXPECT_EQ(part.result->finish_reason, "error");
      EXPECT_NE(part.result->error.find("model.safetensors"), std::string::npos)
          << part.result->error;
    }
    reads_.fail = false;
    EXPECT_EQ(run_one(loop, of_tokens(20)).logits_hash, want);
    EXPECT_EQ(loop.failure(), "");
  }
}

TEST_F(EngineLoopTest, FaultsOfSeveralPassesInARowEndAllAndAreTold) {
  load(2);
  loaded_->runner().stop_steps("the disk is gone");
  EngineLoop loop(*loaded_, 2, shrink_);
  const Request r = of_tokens(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(loop.failure(), "");
    std::map<int64_t, Asked> asked;
    asked.emplace(loop.add(r), Asked{.request = r, .got = {{}}});
    take_until_done(loop, asked);
    EXPECT_NE(asked.begin()->second.got[0].result->error.find("the disk is gone"),
              std::string::npos);
  }
  EXPECT_NE(loop.failure().find("the disk is gone"), std::string::npos);
  EXPECT_THROW(loop.add(r), Error);
}

}  // namespace
}  // namespace sluice
