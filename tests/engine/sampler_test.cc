#include "src/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "src/base/error.h"
#include "src/engine/logprobs.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;
using Row = std::vector<float>;

const Row kLogits{1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

// The sampler works in the row itself, so that it is given a copy.
int32_t sample(Sampler& sampler, Row logits, const Ids& ids = {}, size_t prompt = 0) {
  return sampler.sample(logits, {.ids = ids, .prompt_size = prompt});
}

std::map<int32_t, double> frequencies(const SamplingParams& params,
                                      const std::vector<float>& logits, int draws = 40000) {
  Sampler sampler(params);
  std::map<int32_t, double> seen;
  for (int i = 0; i < draws; ++i) seen[sample(sampler, logits)] += 1.0 / draws;
  return seen;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sample(sampler, kLogits), 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  for (double temperature : {0.5, 1.0, 2.0}) {
    auto seen = frequencies({.temperature = temperature, .seed = 7}, kLogits);
    double total = 0;
    for (float l : kLogits) total += std::exp(l / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      EXPECT_NEAR(seen[static_cast<int32_t>(i)], std::exp(kLogits[i] / temperature) / total, 0.012)
          << i;
    }
  }
}

TEST(Sampler, TopKTopPAndMinPCutTheTail) {
  EXPECT_EQ(frequencies({.temperature = 1, .top_k = 2}, kLogits).size(), 2u);
  EXPECT_EQ(frequencies({.temperature = 1, .top_k = 1}, kLogits).size(), 2u);  // as large
  EXPECT_EQ(frequencies({.temperature = 1, .top_k = 3}, kLogits).size(), 3u);
  EXPECT_EQ(frequencies({.temperature = 1, .top_p = 0.5}, kLogits).size(), 2u);  // 0.41 + 0.41
  EXPECT_EQ(frequencies({.temperature = 1, .top_p = 0.9}, kLogits).size(), 3u);
  EXPECT_EQ(frequencies({.temperature = 1, .top_p = 1e-9}, kLogits).size(), 1u);
  EXPECT_EQ(frequencies({.temperature = 1, .min_p = 0.3}, kLogits).size(), 3u);  // e^-1 = 0.37
  EXPECT_EQ(frequencies({.temperature = 1, .min_p = 1}, kLogits).size(), 2u);
}

TEST(Sampler, SameSeedSameTokens) {
  Sampler a({.temperature = 1, .seed = 3});
  Sampler b({.temperature = 1, .seed = 3});
  Sampler c({.temperature = 1, .seed = 4});
  std::vector<int32_t> from_a, from_b, from_c;
  for (int i = 0; i < 100; ++i) {
    from_a.push_back(sample(a, kLogits));
    from_b.push_back(sample(b, kLogits));
    from_c.push_back(sample(c, kLogits));
  }
  EXPECT_EQ(from_a, from_b);
  EXPECT_NE(from_a, from_c);
}

TEST(Sampler, RefusesNonsense) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = nan}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.min_p = 1.5}), Error);
  EXPECT_THROW(Sampler({.typical_p = 0}), Error);
  EXPECT_THROW(Sampler({.typical_p = nan}), Error);
  EXPECT_THROW(Sampler({.repetition_penalty = 0}), Error);
  EXPECT_THROW(Sampler({.repetition_penalty = infinity}), Error);
  EXPECT_THROW(Sampler({.presence_penalty = -2.1}), Error);
  EXPECT_THROW(Sampler({.frequency_penalty = nan}), Error);
  EXPECT_THROW(Sampler({.no_repeat_ngram_size = -1}), Error);
  EXPECT_THROW(Sampler({.logit_bias = {{1, 101.0f}}}), Error);
  EXPECT_THROW(Sampler({.allowed_token_ids = Ids{}}), Error);
  EXPECT_THROW(Sampler({.allowed_token_ids = Ids{2, 1}, .banned_token_ids = {1, 2, 3}}), Error);
  EXPECT_THROW(Sampler({.min_tokens = -1}), Error);
  EXPECT_THROW(Sampler({.logprobs = -1}), Error);
}

TEST(Sampler, RefusesIdsThatTheVocabularyLacks) {
  for (int32_t id : {-1, 5}) {
    EXPECT_THROW(check_sampling({.logit_bias = {{id, 1.0f}}}, 5), Error);
    EXPECT_THROW(check_sampling({.allowed_token_ids = Ids{id}}, 5), Error);
    EXPECT_THROW(check_sampling({.banned_token_ids = {id}}, 5), Error);
    EXPECT_THROW(check_sampling({.stop_token_ids = {id}}, 5), Error);
  }
  EXPECT_THROW(check_sampling({.logprobs = 6}, 5), Error);
  check_sampling({.logit_bias = {{4, 100.0f}}, .allowed_token_ids = Ids{0}, .logprobs = 5}, 5);
}

TEST(Sampler, RefusesDamagedLogits) {
  Sampler sampler({.temperature = 1});
  float nan = std::numeric_limits<float>::quiet_NaN();
  float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(sample(sampler, {1, nan}), Error);
  EXPECT_THROW(sample(sampler, {-infinity, -infinity}), Error);
  EXPECT_THROW(sample(sampler, {1, infinity}), Error);
  EXPECT_EQ(sample(sampler, {-infinity, 0}), 1);
}

TEST(Sampler, GreedyTakesTheLargestOfWhatIsLeft) {
  auto greedy = [](const SamplingParams& params, const Ids& ids = {}, size_t prompt = 0) {
    Sampler sampler(params, {1});
    return sample(sampler, kLogits, ids, prompt);
  };
  EXPECT_EQ(greedy({.banned_token_ids = {1, 3}}), 2);
  EXPECT_EQ(greedy({.allowed_token_ids = Ids{4, 0, 4}}), 0);
  EXPECT_EQ(greedy({.logit_bias = {{4, 4.5f}}}), 4);
  EXPECT_EQ(greedy({.repetition_penalty = 1.1}, {1}, 1), 3);
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, {1}, 1), 1);  // the prompt does not count
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, {1}, 0), 3);
  EXPECT_EQ(greedy({.frequency_penalty = 0.6}, {1, 3, 1, 3}, 0), 2);
  EXPECT_EQ(greedy({.no_repeat_ngram_size = 2}, {2, 1, 2}, 1), 3);
  EXPECT_EQ(greedy({.min_tokens = 2}, {0, 2}, 1), 3);
  EXPECT_EQ(greedy({.min_tokens = 2}, {0, 2, 2}, 1), 1);
  EXPECT_EQ(greedy({.stop_token_ids = {3}, .min_tokens = 2}, {0, 2}, 1), 2);
}

TEST(Sampler, NeverDrawsWhatIsDropped) {
  auto seen = frequencies({.temperature = 3, .banned_token_ids = {1, 4}}, kLogits, 5000);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_FALSE(seen.contains(1) || seen.contains(4));
  seen = frequencies({.temperature = 3, .allowed_token_ids = Ids{4, 2}}, kLogits, 5000);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen.contains(2) && seen.contains(4));
}

TEST(Sampler, SaysSoWhenNothingIsLeft) {
  Sampler sampler({.temperature = 1, .no_repeat_ngram_size = 1, .allowed_token_ids = Ids{1, 2}});
  EXPECT_EQ(sample(sampler, kLogits, {1, 4}, 2), 2);
  EXPECT_THROW(sample(sampler, kLogits, {1, 4, 2}, 2), Error);
}

// Vocabularies and filters of every size: what is drawn comes as often as the distribution says,
// and its order does not depend on how much of the candidates was sorted.
TEST(Sampler, DrawsFromTheDistribution) {
  test::Random random("sampler");
  for (int round = 0; round < 40; ++round) {
    Row logits(static_cast<size_t>(random.between(2, 400)));
    for (float& l : logits) l = std::round(random.normal(4)) / 2;
    SamplingParams params{.temperature = 0.5 + random.uniform(),
                          .top_k = random.between(0, 1) * random.between(1, 400),
                          .top_p = 1 - random.uniform() / 2,
                          .min_p = random.uniform() / 20,
                          .typical_p = 1 - random.uniform() / 2};
    Sampler sampler(params);
    Row copy = logits;
    std::map<int32_t, double> expected;
    double total = 0;
    for (const TokenProbability& t : sampler.distribution(copy, {})) {
      EXPECT_TRUE(expected.emplace(t.id, t.probability).second);
      total += t.probability;
    }
    EXPECT_NEAR(total, 1, 1e-9);
    const int draws = 2000;
    std::map<int32_t, double> seen = frequencies(params, logits, draws);
    for (auto [id, share] : seen) ASSERT_TRUE(expected.contains(id)) << share;
    for (auto [id, p] : expected)
      EXPECT_NEAR(seen.contains(id) ? seen.at(id) : 0, p, 6 * std::sqrt(p / draws) + 3e-3);
  }
}

TEST(Logprobs, ProbabilitiesSumToOne) {
  double sum = 0;
  for (int32_t i = 0; i < 5; ++i) sum += std::exp(log_probability(kLogits, i));
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(Logprobs, LikeliestFirstAndTheLowerIdAmongEquals) {
  auto ids = [](const TokenLogprobs& found) {
    Ids result;
    for (const Logprob& l : found.top) {
      result.push_back(l.token_id);
      EXPECT_EQ(l.logprob, log_probability(kLogits, l.token_id));
    }
    return result;
  };
  TokenLogprobs found = token_logprobs(kLogits, 4, 3);
  EXPECT_EQ(found.token.token_id, 4);
  EXPECT_EQ(found.token.logprob, log_probability(kLogits, 4));
  EXPECT_EQ(ids(found), (Ids{1, 3, 2}));
  EXPECT_EQ(ids(token_logprobs(kLogits, 0, 5)), (Ids{1, 3, 2, 0, 4}));
  EXPECT_EQ(ids(token_logprobs(kLogits, 0, 1)), (Ids{1}));
  EXPECT_TRUE(token_logprobs(kLogits, 0, 0).top.empty());
}

// Who says so gets from the likeliest token what sample() makes of the row.
TEST(Sampler, TakesTheLikeliestWhereNothingChangesTheRow) {
  const std::vector<int32_t> ids{3, 1, 4, 1, 5};
  const TokenHistory history{ids, 2};
  const std::vector<float> row{-1, 2, 0, 2, 1.5f, -3};
  std::vector<SamplingParams> plain(4), changed(10);
  plain[1].top_k = 3;
  plain[1].top_p = 0.5;
  plain[2].stop_token_ids = {1};
  plain[3].min_tokens = 3;  // they are there
  changed[0].temperature = 0.1;
  changed[1].allowed_token_ids = {2};
  changed[2].banned_token_ids = {1};
  changed[3].logit_bias = {{0, 5.0f}};
  changed[4].repetition_penalty = 1.1;
  changed[5].presence_penalty = 1;
  changed[6].frequency_penalty = -1;
  changed[7].no_repeat_ngram_size = 2;
  changed[8].min_tokens = 4;
  changed[8].stop_token_ids = {1};
  changed[9].repetition_penalty = 0.9;
  for (const SamplingParams& p : plain) {
    Sampler sampler(p);
    EXPECT_TRUE(sampler.takes_likeliest(history));
    std::vector<float> logits = row;
    EXPECT_EQ(Sampler::take(likeliest(row)), sampler.sample(logits, history));
    EXPECT_EQ(logits, row);
  }
  for (const SamplingParams& p : changed) EXPECT_FALSE(Sampler(p).takes_likeliest(history));
  EXPECT_THROW(Sampler::take({std::numeric_limits<float>::quiet_NaN(), 0}), Error);
  EXPECT_THROW(Sampler::take({-std::numeric_limits<float>::infinity(), 0}), Error);
}

// The largest logits, in any order and more of them than asked for, give the tokens of the row.
TEST(Sampler, SamplesFromTheLargestLogitsWhatItSamplesFromTheRow) {
  test::Random random("Sampler.SamplesFromTheLargestLogitsWhatItSamplesFromTheRow");
  const std::vector<int32_t> ids{1, 2};
  const TokenHistory history{ids, 1};
  constexpr int64_t kKnown = 20;
  for (int i = 0; i < 2000; ++i) {
    SamplingParams p;
    p.temperature = random.uniform() < 0.3 ? 0.01 : 0.2 + random.uniform();
    p.top_k = random.between(1, kKnown - 1);
    p.top_p = random.uniform() < 0.5 ? 1 : 0.2 + 0.8 * random.uniform();
    p.min_p = random.uniform() < 0.7 ? 0 : 0.1 * random.uniform();
    p.typical_p = random.uniform() < 0.7 ? 1 : 0.5 + 0.5 * random.uniform();
    p.seed = static_cast<uint64_t>(i);
    std::vector<float> row(static_cast<size_t>(random.between(1, 60)));
    const bool ties = random.uniform() < 0.5;
    for (float& l : row) l = ties ? std::round(random.normal(3)) : random.normal(3);
    if (random.uniform() < 0.2 && row.size() > 3) row[1] = row[2] = -HUGE_VALF;
    std::vector<TokenLogit> top;
    std::vector<float> sorted = row;
    std::ranges::sort(sorted, std::greater());
    const float least = sorted[std::min<size_t>(kKnown, sorted.size()) - 1];
    for (size_t t = 0; t < row.size(); ++t)
      if (row[t] >= least) top.push_back({row[t], static_cast<int32_t>(t)});
    std::shuffle(top.begin(), top.end(), random.engine());
    Sampler of_row(p), of_top(p);
    ASSERT_TRUE(of_top.takes_top(history, kKnown));
    for (int draws = 0; draws < 5; ++draws) {
      std::vector<float> logits = row;
      ASSERT_EQ(of_top.sample_top(top), of_row.sample(logits, history)) << "case " << i;
    }
  }
  SamplingParams many{.temperature = 1, .top_k = kKnown};
  EXPECT_FALSE(Sampler(many).takes_top(history, kKnown));
  EXPECT_FALSE(Sampler({.temperature = 1}).takes_top(history, kKnown));
  EXPECT_FALSE(Sampler({.top_k = 3}).takes_top(history, kKnown));
  SamplingParams biased{.temperature = 1, .top_k = 3};
  biased.logit_bias = {{1, 2.0f}};
  EXPECT_FALSE(Sampler(biased).takes_top(history, kKnown));
  std::vector<TokenLogit> damaged{{1, 3}, {std::numeric_limits<float>::quiet_NaN(), 1}, {2, 2}};
  EXPECT_THROW(Sampler({.temperature = 1, .top_k = 3}).sample_top(damaged), Error);
}

}  // namespace
}  // namespace sluice
