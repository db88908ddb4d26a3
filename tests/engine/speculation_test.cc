// Guessing ahead changes the number of passes, and nothing else.
#include "src/engine/speculation.h"

#include <gtest/gtest.h>

#include "src/engine/generate.h"
#include "src/engine/session.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

TEST(PromptLookup, GuessesWhatFollowedTheSameTokens) {
  PromptLookup lookup;
  std::vector<int32_t> ids{1, 2, 3, 4, 5, 9, 1, 2, 3};
  EXPECT_EQ(lookup.guess(ids, 2), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(lookup.guess(ids, 0), std::vector<int32_t>{});
  EXPECT_EQ(lookup.guess(std::vector<int32_t>{1, 2, 3, 4}, 5), std::vector<int32_t>{});
  EXPECT_EQ(lookup.guess(std::vector<int32_t>{}, 5), std::vector<int32_t>{});
  EXPECT_EQ(lookup.guess(std::vector<int32_t>{7, 7, 7, 7}, 5), std::vector<int32_t>{7});
}

TEST(PromptLookup, PrefersTheLongerAndTheLaterPlace) {
  PromptLookup lookup;
  EXPECT_EQ(lookup.guess(std::vector<int32_t>{8, 1, 2, 5, 9, 1, 2, 6, 8, 1, 2}, 1),
            std::vector<int32_t>{5});
  EXPECT_EQ(lookup.guess(std::vector<int32_t>{1, 2, 5, 1, 2, 6, 1, 2}, 1), std::vector<int32_t>{6});
}

TEST(PromptLookup, AsksForFewerAfterWrongGuesses) {
  PromptLookup lookup;
  std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2};
  auto asked = [&] { return std::ssize(lookup.guess(ids, 100)); };
  EXPECT_EQ(asked(), kSpeculativeRows - 1);
  lookup.learn(7, 0);
  EXPECT_EQ(asked(), 1);
  lookup.learn(1, 1);
  EXPECT_EQ(asked(), 2);
  for (int i = 0; i < 5; ++i) lookup.learn(2, 2);
  EXPECT_EQ(asked(), kSpeculativeRows - 1);
}

GenerateResult generate(const std::filesystem::path& model, const std::vector<int32_t>& prompt,
                        const SamplingParams& sampling, int64_t tokens, bool speculate) {
  SessionOptions options;
  options.model = model;
  options.threads = 2;
  Session session(options);
  int64_t length = std::ssize(prompt);
  session.place(
      session.run_shape(length + tokens, std::max(length, kSpeculativeRows), kSpeculativeRows));
  LoadProgress progress;
  session.load(progress, {});
  Generation generation(session.runner(), nullptr,
                        {.prompt = prompt,
                         .max_tokens = tokens,
                         .sampling = sampling,
                         .stop = {},
                         .eos_ids = {},
                         .speculate = speculate});
  while (generation.next({})) {
  }
  return generation.result();
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
      GenerateResult plain = generate(dir.path(), prompt, sampling, 40, false);
      GenerateResult ahead = generate(dir.path(), prompt, sampling, 40, true);
      EXPECT_EQ(ahead.ids, plain.ids);
      EXPECT_EQ(ahead.logits_hash, plain.logits_hash);
      EXPECT_EQ(plain.steps, 39);
      EXPECT_EQ(ahead.steps + ahead.accepted, 39);
      accepted += ahead.accepted;
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace sluice
