#include "src/engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

const std::vector<float> kLogits{1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

std::map<int32_t, double> frequencies(const SamplingParams& params,
                                      const std::vector<float>& logits, int draws = 40000) {
  Sampler sampler(params);
  std::map<int32_t, double> seen;
  for (int i = 0; i < draws; ++i) seen[sampler.sample(logits)] += 1.0 / draws;
  return seen;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(kLogits), 1);
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
  EXPECT_EQ(frequencies({.temperature = 1, .top_k = 1}, kLogits).size(), 1u);
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
    from_a.push_back(a.sample(kLogits));
    from_b.push_back(b.sample(kLogits));
    from_c.push_back(c.sample(kLogits));
  }
  EXPECT_EQ(from_a, from_b);
  EXPECT_NE(from_a, from_c);
}

TEST(Sampler, RefusesNonsense) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.min_p = 1.5}), Error);
  Sampler sampler({.temperature = 1});
  float nan = std::numeric_limits<float>::quiet_NaN();
  float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(sampler.sample(std::vector<float>{1, nan}), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>{-infinity, -infinity}), Error);
  EXPECT_EQ(sampler.sample(std::vector<float>{-infinity, 0}), 1);
}

TEST(Sampler, LogProbabilitiesSumToOne) {
  double sum = 0;
  for (int32_t i = 0; i < 5; ++i) sum += std::exp(log_probability(kLogits, i));
  EXPECT_NEAR(sum, 1, 1e-12);
}

}  // namespace
}  // namespace sluice
