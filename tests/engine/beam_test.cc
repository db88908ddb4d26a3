// Beam search against transformers, alone and in a KV cache that has hardly room for it.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "tests/support/safetensors.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct Case {
  Request request;
  std::vector<std::vector<int32_t>> results;
};

// tools/make-beam-golden wrote them.
std::vector<Case> cases() {
  Json file = Json::parse(test::read_file(test::source_dir() / "tests/data/beams/beams.json"));
  std::vector<Case> all;
  for (const Json& c : file.at("cases")) {
    Case one;
    one.request.prompt = c.at("prompt").get<std::vector<int32_t>>();
    one.request.max_tokens = c.at("max_tokens");
    one.request.n = c.at("n");
    one.request.beams = {c.at("width"), c.at("length_penalty")};
    one.request.eos_ids = c.at("ends").get<std::vector<int32_t>>();
    one.results = c.at("results").get<std::vector<std::vector<int32_t>>>();
    all.push_back(std::move(one));
  }
  return all;
}

class BeamTest : public testing::Test {
 protected:
  // A KV cache for so many beams of some 30 tokens.
  Runner& load(int64_t beams) {
    ModelOptions o;
    o.model = test::source_dir() / "tools/demo-model";
    o.dtype = DtypeChoice::f32;
    o.block_size = 4;
    o.threads = 1;
    loaded_.reset();
    planner_.emplace(std::move(o));
    loaded_.emplace(*planner_, planner_->place(planner_->run_shape(beams * 32, 16, 8, beams)));
    return loaded_->runner();
  }
  std::optional<Planner> planner_;
  std::optional<LoadedModel> loaded_;
};

using Results = std::map<OutputId, RequestResult>;

void collect(Engine& engine, Results& results) {
  for (const Output& out : engine.step({})) {
    if (!out.finished) continue;
    RequestResult r = engine.take(out.id);
    EXPECT_EQ(out.text, r.text);
    results.emplace(out.id, std::move(r));
  }
}

TEST_F(BeamTest, AsTransformersFindsThem) {
  if (test::is_brief()) GTEST_SKIP() << "the next test asks for the same, beside other requests";
  Runner& runner = load(6);
  for (const Case& c : cases()) {
    Engine engine(runner, nullptr, 6);
    engine.add(c.request);
    Results have;
    while (!engine.idle()) collect(engine, have);
    ASSERT_EQ(have.size(), c.results.size());
    for (size_t i = 0; i < c.results.size(); ++i)
      EXPECT_EQ(have.at({0, static_cast<int64_t>(i)}).ids, c.results[i]) << i;
    EXPECT_TRUE(runner.blocks().idle());
  }
}

// Six beams have just room: requests take it from each other, and two sequences at most run in a
// step.
TEST_F(BeamTest, TheSameWhateverElseRuns) {
  std::vector<Case> all = cases();
  if (test::is_brief()) all.resize(std::min<size_t>(all.size(), 3));
  int64_t preemptions = 0;
  for (int64_t most : {2, 5, 40}) {
    if (test::is_brief() && most < 40) continue;
    Runner& runner = load(6);
    Engine engine(runner, nullptr, most);
    Results have;
    for (const Case& c : all) {
      engine.add(c.request);
      Request sampled;
      sampled.prompt = c.request.prompt;
      sampled.max_tokens = 20;
      engine.add(sampled);
    }
    while (!engine.idle()) collect(engine, have);
    for (size_t c = 0; c < all.size(); ++c) {
      for (size_t i = 0; i < all[c].results.size(); ++i) {
        OutputId id{2 * static_cast<int64_t>(c), static_cast<int64_t>(i)};
        EXPECT_EQ(have.at(id).ids, all[c].results[i]) << c << "." << i;
      }
    }
    preemptions += engine.stats().preemptions;
    EXPECT_TRUE(runner.blocks().idle());
  }
  EXPECT_TRUE(test::is_brief() || preemptions > 0);
}

TEST_F(BeamTest, WhatCannotBeIsRefusedAndWhatIsCancelledLeavesNoTrace) {
  Runner& runner = load(4);
  Engine engine(runner, nullptr, 8);
  Request r = cases().front().request;
  auto refused = [&](auto change) {
    Request wrong = r;
    change(wrong);
    EXPECT_THROW(engine.add(wrong), Error);
  };
  refused([](Request& q) { q.n = 5; });
  refused([](Request& q) { q.sampling.temperature = 1; });
  refused([](Request& q) { q.beams.width = 1000; });
  refused([](Request& q) { q.beams.length_penalty = 1.0 / 0.0; });
  refused([](Request& q) { q.beams.width = 100; });  // no room
  int64_t id = engine.add(r);
  for (int i = 0; i < 5; ++i) engine.step({});
  engine.cancel(id);
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(runner.blocks().idle());
}

}  // namespace
}  // namespace sluice
