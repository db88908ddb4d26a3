// Speculative decoding changes the number of passes, and nothing else.
#include "src/engine/speculation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>

#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/golden.h"
#include "tests/engine/small_model.h"
#include "tests/engine/speculating.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

TEST(PromptLookup, ProposesWhatFollowedTheSameTokens) {
  Ids ids{1, 2, 3, 4, 5, 9, 1, 2, 3};
  EXPECT_EQ(lookup_draft(ids, 2), (Ids{4, 5}));
  EXPECT_EQ(lookup_draft(ids, 0), Ids{});
  EXPECT_EQ(lookup_draft(Ids{1, 2, 3, 4}, 5), Ids{});
  EXPECT_EQ(lookup_draft(Ids{}, 5), Ids{});
  EXPECT_EQ(lookup_draft(Ids{7, 7, 7, 7}, 5), Ids{7});
}

TEST(PromptLookup, PrefersTheLongerAndTheLaterPlace) {
  EXPECT_EQ(lookup_draft(Ids{8, 1, 2, 5, 9, 1, 2, 6, 8, 1, 2}, 1), Ids{5});
  EXPECT_EQ(lookup_draft(Ids{1, 2, 5, 1, 2, 6, 1, 2}, 1), Ids{6});
}

PassCost cost_of(double first, double further) {
  PassCost cost;
  cost.learn(1, first);
  cost.learn(2, first + further);
  return cost;
}

TEST(DraftLength, FollowsWhatIsAccepted) {
  PassCost cost = cost_of(1, 0.01);
  DraftLength length;
  EXPECT_EQ(length.choose(15, PassCost()), 0) << "nothing is known of the cost yet";
  for (int i = 0; i < 4; ++i) length.learn(length.choose(15, cost), length.choose(15, cost), 0);
  EXPECT_EQ(length.choose(15, cost), 15);
  EXPECT_EQ(length.choose(3, cost), 3);
  for (int i = 0; i < 20; ++i) length.learn(2, 0, 0);
  EXPECT_LE(length.choose(15, cost), 2);
}

TEST(DraftLength, FollowsWhatItCosts) {
  DraftLength length;  // as yet believes in its tokens
  EXPECT_GT(length.choose(15, cost_of(1, 0.01)), length.choose(15, cost_of(1, 0.3)));
  EXPECT_EQ(length.choose(15, cost_of(1, 1)), 1) << "just to try";
  DraftLength slow;
  slow.learn(10, 10, 100);
  EXPECT_LE(slow.choose(15, cost_of(1, 0.01)), 1) << "the draft takes longer than the pass";
}

TEST(DraftLength, TriesEverLessOftenWhatIsOfNoUse) {
  PassCost cost = cost_of(1, 0.5);
  DraftLength length;
  int drafted = 0;
  for (int pass = 0; pass < 1000; ++pass) {
    int64_t n = length.choose(15, cost);
    drafted += n > 0;
    length.learn(n, 0, 0);
  }
  EXPECT_GT(drafted, 5);
  EXPECT_LT(drafted, 30);
}

struct Ahead {
  bool lookup = false;
  std::filesystem::path draft = {};
  int64_t block_size = 16;
};

RequestResult generate(const std::filesystem::path& model, const Ids& prompt,
                       const SamplingParams& sampling, int64_t tokens, const Ahead& ahead) {
  ModelOptions options;
  options.model = model;
  options.threads = 1;
  options.block_size = ahead.block_size;
  ModelOptions draft = options;
  draft.model = ahead.draft;
  test::Speculating both(options, ahead.draft.empty() ? nullptr : &draft, std::ssize(prompt),
                         tokens);
  LoadedModel& loaded = *both.loaded;
  Engine engine(loaded.runner(), nullptr, 1);
  Request request;
  request.prompt = prompt;
  request.max_tokens = tokens;
  request.sampling = sampling;
  request.lookup = ahead.lookup;
  request.draft = both.draft();
  OutputId id{engine.add(request), 0};
  while (!engine.idle()) engine.step({});
  EXPECT_LE(both.planner.machine().ledger().peak(Place::host), loaded.predicted_peak());
  return engine.take(id);
}

std::vector<double> logprobs_of(const RequestResult& result) {
  std::vector<double> all;
  for (const TokenLogprobs& token : result.logprobs) {
    all.push_back(token.token.logprob);
    for (const Logprob& l : token.top) all.push_back(l.logprob);
  }
  return all;
}

TEST(Speculation, SameTokensAndLogitsGreedyAndSampled) {
  test::Random random("speculation");
  int64_t accepted = 0;
  for (int round = 0; round < 6; ++round) {
    Json config = test::tiny_config();
    config["vocab_size"] = random.between(4, 30);  // few tokens: much repetition
    if (round % 2 == 1) {                          // whose frequencies depend on the length
      config["max_position_embeddings"] = 16;
      config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 4.0}};
    }
    test::TempDir dir;
    test::write_checkpoint(dir.path(), config, test::tiny_tensors(config, random));
    std::vector<int32_t> prompt;
    for (int64_t i = random.between(1, 12); i > 0; --i)
      prompt.push_back(
          static_cast<int32_t>(random.between(0, config["vocab_size"].get<int64_t>() - 1)));
    for (double temperature : {0.0, 0.7}) {
      SamplingParams sampling;
      sampling.temperature = temperature;
      sampling.seed = static_cast<uint64_t>(round);
      if (round >= 4) {  // what depends on the tokens before, draft tokens among them
        sampling.repetition_penalty = 1.1;
        sampling.presence_penalty = -0.2;
        sampling.frequency_penalty = 0.1;
        sampling.no_repeat_ngram_size = 5;
        sampling.logprobs = 2;
      }
      RequestResult plain = generate(dir.path(), prompt, sampling, 40, {});
      EXPECT_EQ(plain.steps, 39);
      // The model as its own draft: greedy draft tokens that are always right, and sampled ones
      // mostly wrong.
      for (const Ahead& how :
           {Ahead{true, {}}, Ahead{false, dir.path()}, Ahead{true, dir.path()}}) {
        RequestResult ahead = generate(dir.path(), prompt, sampling, 40, how);
        EXPECT_EQ(ahead.ids, plain.ids);
        EXPECT_EQ(ahead.logits_hash, plain.logits_hash);
        EXPECT_EQ(logprobs_of(ahead), logprobs_of(plain));
        EXPECT_EQ(ahead.steps + ahead.accepted, 39);
        accepted += ahead.accepted;
        if (!how.draft.empty() && !how.lookup && temperature == 0 && round % 2 == 0 && round < 4) {
          EXPECT_EQ(ahead.accepted, ahead.drafted);
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);
}

// Models of one vocabulary: with windows in all layers or some, with states, and with neither.
class Pairs : public testing::Test {
 protected:
  static constexpr int64_t kVocab = 96;

  std::filesystem::path draw() {
    constexpr std::array kBundled{"cohere2",    "olmo3",   "mixtral", "falcon_h1",  "lfm2",
                                  "nemotron_h", "qwen3_5", "mamba2",  "granitemoe", "gptj"};
    if (random_.uniform() < 0.4) {
      small_.emplace_back(random_.between(1, 40), kVocab, small_.size() + 1);
      return small_.back().path();
    }
    return test::bundled_model(
        kBundled[static_cast<size_t>(random_.between(0, kBundled.size() - 1))]);
  }
  Ids draw_ids(int64_t count) {
    Ids ids;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>(random_.between(0, kVocab - 1)));
    return ids;
  }

  test::Random random_{"pairs of models"};
  std::deque<test::SmallModel> small_;
};

// Most draft tokens of one model for another are wrong.
TEST_F(Pairs, SameTokensWithAnyDraftAndAnyTarget) {
  for (int round = 0; round < (test::is_brief() ? 4 : 12); ++round) {
    const std::filesystem::path model = draw(), draft = draw();
    SCOPED_TRACE(model.string() + " with " + draft.string());
    const Ids prompt = draw_ids(random_.between(1, 60));
    const Ahead how{
        .lookup = random_.uniform() < 0.3, .draft = draft, .block_size = random_.between(1, 16)};
    EXPECT_EQ(generate(model, prompt, {}, 60, how).ids,
              generate(model, prompt, {}, 60, {.block_size = how.block_size}).ids);
  }
}

// Whatever came of the draft tokens before, and whatever text comes next.
TEST_F(Pairs, ADraftModelProposesAsIfItHadNeverDoneSoBefore) {
  constexpr int64_t kLongest = 150;
  for (int round = 0; round < (test::is_brief() ? 2 : 10); ++round) {
    ModelOptions options;
    options.model = draw();
    options.threads = 1;
    options.block_size = random_.between(1, 16);
    SCOPED_TRACE(options.model.string());
    Planner planner(options);
    const RunShape one = DraftModel::shape(planner, kLongest, 1);
    LoadedModel loaded(
        planner, planner.place(planner.run_shape(2 * one.max_tokens, one.longest_prompt, 1, 2)));
    Runner& runner = loaded.runner();
    DraftModel draft(runner, kLongest);
    Ids ids = draw_ids(random_.between(1, 50));
    while (std::ssize(ids) < kLongest) {
      const Ids found = draft.propose(ids, random_.between(1, kSpeculativeRows - 1), {});
      EXPECT_EQ(found, DraftModel(runner, kLongest).propose(ids, std::ssize(found), {}));
      ids.insert(ids.end(), found.begin(), found.begin() + random_.between(0, std::ssize(found)));
      ids.push_back(static_cast<int32_t>(random_.between(0, kVocab - 1)));
      if (random_.uniform() < 0.1)
        ids.resize(static_cast<size_t>(random_.between(1, std::ssize(ids))));
    }
  }
}

// A draft model's fault costs no more than what its tokens would have saved.
TEST_F(Pairs, ADraftModelWhoseFilesHaveChangedProposesNothing) {
  small_.emplace_back(3, kVocab, 1);
  ModelOptions options;
  options.model = small_.back().path();
  options.threads = 1;
  options.place = parse_place_rules("*=disk");
  Planner planner(options);
  LoadedModel loaded(planner, planner.place(DraftModel::shape(planner, 40, 8)));
  DraftModel draft(loaded.runner(), 40);
  EXPECT_EQ(draft.propose(Ids{1, 2, 3}, 2, {}).size(), 2u);
  for (const auto& entry : std::filesystem::directory_iterator(options.model)) {
    if (entry.path().extension() == ".safetensors")
      std::filesystem::last_write_time(entry, std::filesystem::file_time_type::clock::now());
  }
  EXPECT_EQ(draft.propose(Ids{1, 2, 3, 4}, 2, {}), Ids{});
  EXPECT_EQ(draft.propose(Ids{1, 2, 3, 4, 5}, 2, {}), Ids{});
}

// The token that ends the sequence may be a draft token.
TEST(Speculation, EndsWithTheSameStopToken) {
  test::Random random("stop-tokens");
  Json config = test::tiny_config();
  config["vocab_size"] = 12;
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, test::tiny_tensors(config, random));
  for (int64_t min_tokens : {0, 6}) {
    SamplingParams sampling;
    sampling.temperature = 1;
    sampling.seed = 3;
    sampling.stop_token_ids = {2, 5};
    sampling.min_tokens = min_tokens;
    sampling.logprobs = 0;
    RequestResult plain = generate(dir.path(), {1, 2, 3}, sampling, 60, {});
    EXPECT_EQ(plain.logprobs.size(), plain.ids.size());
    auto stops = [](int32_t id) { return id == 2 || id == 5; };
    auto first = std::ranges::find_if(plain.ids, stops);
    EXPECT_GE(first - plain.ids.begin(), min_tokens);
    if (plain.finish_reason == "stop") {
      EXPECT_EQ(first + 1, plain.ids.end());
    } else {
      EXPECT_EQ(first, plain.ids.end());
    }
    RequestResult ahead = generate(dir.path(), {1, 2, 3}, sampling, 60, Ahead{true, dir.path()});
    EXPECT_EQ(ahead.ids, plain.ids);
    EXPECT_EQ(ahead.finish_reason, plain.finish_reason);
    EXPECT_EQ(ahead.logits_hash, plain.logits_hash);
    EXPECT_EQ(ahead.logprobs.size(), ahead.ids.size());
  }
}

}  // namespace
}  // namespace sluice
