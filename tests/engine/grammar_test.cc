// Structured output: what a model generates within a grammar matches it, and is the same alone,
// beside others, preempted, and with draft tokens.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/engine/constraint.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using grammar::SourceKind;

constexpr int64_t kLongestAnswer = 140;  // tokens of a sequence

constexpr const char* kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
        "age":{"type":"integer","minimum":0,"maximum":150},"married":{"type":"boolean"}},
        "required":["name","age","married"],"additionalProperties":false})",
    R"({"type":"array","minItems":2,"maxItems":3,"items":{"anyOf":[
        {"type":"string","pattern":"^[A-Z][a-z]{2,6}$"},{"type":"null"},
        {"type":"object","properties":{"x":{"type":"number","minimum":-1,"maximum":1}},
         "required":["x"]}]}})",
    R"({"enum":["Elizabeth","Anne",3,{"who":"Emma"}]})",
    R"({"type":"object","properties":{"day":{"type":"string","format":"date"},
        "kind":{"enum":["ball","walk","letter"]},"note":{"type":"string","maxLength":8}},
        "required":["day","kind"]})"};

class Model {
 public:
  explicit Model(int64_t sequences) : planner_(options()) {
    RunShape shape = planner_.run_shape(sequences * kLongestAnswer, 64, 6);
    shape.sampling_bytes = uint64_t{64} << 20;
    loaded_.emplace(planner_, planner_.place(shape));
  }
  Planner& planner() { return planner_; }
  LoadedModel& loaded() { return *loaded_; }

  Request request(SourceKind kind, const char* source) {
    Request r;
    r.prompt = planner_.checkpoint().need_tokenizer().encode("Elizabeth said to Anne:", true);
    r.max_tokens = 120;
    r.eos_ids = planner_.checkpoint().model().files.eos_ids;
    r.sampling.grammar = planner_.checkpoint().grammars().find({kind, source}, "test");
    return r;
  }

 private:
  static ModelOptions options() {
    ModelOptions o;
    o.model = test::source_dir() / "tools/demo-model";
    o.threads = 1;
    o.block_size = 4;
    return o;
  }
  Planner planner_;
  std::optional<LoadedModel> loaded_;
};

std::vector<Request> requests(Model& model, test::Random& random) {
  std::vector<Request> all;
  for (int i = 0; i < (test::is_brief() ? 2 : 16); ++i) {
    Request r = model.request(SourceKind::json_schema, kSchemas[i % 4]);
    r.sampling.temperature = random.uniform() < 0.3 ? 0 : 1;
    r.sampling.seed = static_cast<uint64_t>(random.between(0, 1000));
    if (random.uniform() < 0.3) r.sampling.logprobs = 1;
    if (random.uniform() < 0.3) r.sampling.repetition_penalty = 1.1;
    r.n = random.uniform() < 0.3 ? 2 : 1;
    r.lookup = random.uniform() < 0.6;
    if (random.uniform() < 0.2) r.sampling.grammar = nullptr;
    all.push_back(std::move(r));
  }
  return all;
}

using Results = std::map<OutputId, RequestResult>;

Results run(Engine& engine) {
  Results results;
  while (!engine.idle()) {
    for (const Output& out : engine.step({}))
      if (out.finished) results.emplace(out.id, engine.take(out.id));
  }
  return results;
}

Results alone(Model& model, const std::vector<Request>& requests) {
  Results all;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int64_t k = 0; k < requests[i].n; ++k) {
      Engine engine(model.loaded().runner(), model.planner().checkpoint().tokenizer(), 1);
      Request r = requests[i];
      r.n = 1;
      r.lookup = false;
      r.sampling.seed += static_cast<uint64_t>(k);
      engine.add(r);
      all.emplace(OutputId{static_cast<int64_t>(i), k}, run(engine).begin()->second);
    }
  }
  return all;
}

TEST(EngineGrammar, SchemasHoldAloneAndTogetherAndPreempted) {
  test::Random random("engine grammars");
  Model wide(8);
  const std::vector<Request> asked = requests(wide, random);
  const Results want = alone(wide, asked);
  int64_t whole = 0;
  for (const auto& [id, result] : want) {
    EXPECT_EQ(result.error, "");
    const auto& grammar = asked[static_cast<size_t>(id.request)].sampling.grammar;
    if (!grammar || result.finish_reason != "stop") continue;
    ++whole;
    EXPECT_TRUE(Json::accept(result.text)) << result.text;
    grammar::StepBudget budget(100'000'000);
    EXPECT_TRUE(grammar::State::start(*grammar->grammar, budget)
                    .next(*grammar->grammar, result.text, budget)
                    .can_end())
        << result.text;
  }
  EXPECT_GT(whole, std::ssize(want) / 3);
  Model narrow(2);  // room for two of the longest
  Engine engine(narrow.loaded().runner(), narrow.planner().checkpoint().tokenizer(), 8);
  for (const Request& r : asked) {
    Request same = r;
    if (same.sampling.grammar) {  // of this model's tokens
      same.sampling.grammar = std::make_shared<const grammar::TokenGrammar>(grammar::TokenGrammar{
          r.sampling.grammar->grammar, narrow.planner()
                                           .checkpoint()
                                           .grammars()
                                           .find({SourceKind::json_object, {}}, "test")
                                           ->tokens});
    }
    engine.add(std::move(same));
  }
  const Results have = run(engine);
  ASSERT_EQ(have.size(), want.size());
  for (const auto& [id, result] : want) {
    EXPECT_EQ(have.at(id).text, result.text);
    EXPECT_EQ(have.at(id).ids, result.ids);
    EXPECT_EQ(have.at(id).logits_hash, result.logits_hash);
    EXPECT_EQ(have.at(id).finish_reason, result.finish_reason);
  }
  EXPECT_TRUE(test::kSanitized || engine.stats().preemptions > 0);
  EXPECT_TRUE(narrow.loaded().runner().blocks().idle());
}

TEST(EngineGrammar, DraftTokensThatTheGrammarForbidsAreNotTried) {
  Model model(2);
  Engine engine(model.loaded().runner(), model.planner().checkpoint().tokenizer(), 1);
  Request r = model.request(SourceKind::regex, "(ab, ){12}end");
  r.lookup = true;
  OutputId id{engine.add(r), 0};
  while (!engine.idle()) engine.step({});
  const RequestResult result = engine.take(id);
  EXPECT_EQ(result.text, "ab, ab, ab, ab, ab, ab, ab, ab, ab, ab, ab, ab, end");
  EXPECT_EQ(result.finish_reason, "stop");
}

TEST(EngineGrammar, ACompleteTextEndsWithoutAnEndToken) {
  Model model(1);
  for (const char* text : {"yes", "no"}) {
    Engine engine(model.loaded().runner(), model.planner().checkpoint().tokenizer(), 1);
    Request r = model.request(SourceKind::choice, R"(["yes", "no"])");
    r.sampling.grammar =
        model.planner().checkpoint().grammars().find({SourceKind::regex, text}, "test");
    r.eos_ids.clear();
    OutputId id{engine.add(r), 0};
    while (!engine.idle()) engine.step({});
    const RequestResult result = engine.take(id);
    EXPECT_EQ(result.text, text);
    EXPECT_EQ(result.finish_reason, "stop");
  }
}

TEST(EngineGrammar, WhatCannotGoOnEndsItsRequestOnly) {
  Model model(2);
  Engine engine(model.loaded().runner(), model.planner().checkpoint().tokenizer(), 2);
  Request stuck = model.request(SourceKind::regex, "[xyz]");
  stuck.sampling.min_tokens = 5;
  Request good = model.request(SourceKind::regex, "[xyz]{3}");
  OutputId first{engine.add(stuck), 0}, second{engine.add(good), 0};
  while (!engine.idle()) engine.step({});
  const RequestResult failed = engine.take(first);
  EXPECT_EQ(failed.finish_reason, "error");
  EXPECT_NE(failed.error.find("the grammar"), std::string::npos) << failed.error;
  EXPECT_EQ(engine.take(second).text.size(), 3u);
}

TEST(EngineGrammar, TokensThatEndAreAllowedWhereTheTextMayEnd) {
  Model model(1);
  const Tokenizer& tokenizer = model.planner().checkpoint().need_tokenizer();
  Request r = model.request(SourceKind::regex, "a+");
  const int32_t a = *tokenizer.id_of("a");
  r.sampling.stop_token_ids = {a};  // is no part of the text then
  Constraint constraint(r.sampling.grammar, {1, a});
  EXPECT_EQ(constraint.allowed(std::vector<int32_t>{1}), 0u);
  EXPECT_EQ(constraint.allowed(std::vector<int32_t>{a}), 0u);
  EXPECT_EQ(Constraint(r.sampling.grammar, {1}).allowed(std::vector<int32_t>{a, a, 1, a}), 3u);
  std::vector<float> logits(4096, 0);
  grammar::TokenMasks masks(r.sampling.grammar->tokens);
  const TokenMask mask = constraint.mask(masks);
  keep_allowed(logits, mask, std::vector<int32_t>{1, a});
  EXPECT_EQ(logits[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(logits[static_cast<size_t>(a)], -std::numeric_limits<float>::infinity());
}

TEST(EngineGrammar, WhatItTakesIsPlannedAndCounted) {
  ModelOptions options;
  options.model = test::source_dir() / "tools/demo-model";
  options.threads = 1;
  Planner planner(options);
  Request r;
  r.prompt = {0, 5};
  r.max_tokens = 30;
  r.sampling.grammar = planner.checkpoint().grammars().find({SourceKind::json_object, {}}, "test");
  RunShape shape = planner.run_shape(32, 2, 1);
  shape.sampling_bytes = sampling_bytes(r, planner.checkpoint().spec().vocab_size);
  EXPECT_GE(shape.sampling_bytes,
            r.sampling.grammar->tokens->bytes() +
                grammar::TokenMasks::bytes(planner.checkpoint().spec().vocab_size));
  LoadedModel loaded(planner, planner.place(shape));
  Engine engine(loaded.runner(), planner.checkpoint().tokenizer(), 1);
  const uint64_t before = planner.machine().ledger().used(Place::host);
  engine.add(r);
  EXPECT_GE(planner.machine().ledger().used(Place::host), before + shape.sampling_bytes);
  run(engine);
  EXPECT_LE(planner.machine().ledger().peak(Place::host), loaded.predicted_peak());
}

TEST(EngineGrammar, BeamSearchIsRefused) {
  Model model(2);
  Engine engine(model.loaded().runner(), model.planner().checkpoint().tokenizer(), 2);
  Request r = model.request(SourceKind::json_object, "");
  r.beams = {2, 1};
  EXPECT_THROW(engine.add(r), Error);
}

}  // namespace
}  // namespace sluice
