// Logits processors against Hugging Face transformers: the same tokens dropped, and the logits and
// probabilities of the others. tests/data/sampling has the cases: `processors`, and `edges`, whose
// logits have few values, so that ties are everywhere. More where the shared folder is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "src/base/error.h"
#include "src/engine/sampler.h"
#include "tests/support/safetensors.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> bundled() {
  const fs::path root = test::source_dir() / "tests/data/sampling";
  return {root / "edges", root / "processors"};
}

std::vector<fs::path> shared() {
  std::vector<fs::path> found;
  if (test::oracle_dir().empty()) return found;
  for (const auto& entry : fs::directory_iterator(test::oracle_dir() / "sampling"))
    found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

void set(SamplingParams& params, const std::string& name, const Json& value) {
  if (name == "temperature") {
    params.temperature = value;
  } else if (name == "top_k") {
    params.top_k = value;
  } else if (name == "top_p") {
    params.top_p = value;
  } else if (name == "min_p") {
    params.min_p = value;
  } else if (name == "typical_p") {
    params.typical_p = value;
  } else if (name == "repetition_penalty") {
    params.repetition_penalty = value;
  } else if (name == "no_repeat_ngram") {
    params.no_repeat_ngram_size = value;
  } else if (name == "banned_token_ids") {
    params.banned_token_ids = value.get<std::vector<int32_t>>();
  } else if (name == "logit_bias") {
    for (const auto& [id, bias] : value.items()) params.logit_bias[std::stoi(id)] = bias;
  } else {
    FAIL() << "no such processor: " << name;
  }
}

class SamplingGoldenTest : public testing::TestWithParam<fs::path> {
 protected:
  SamplingGoldenTest()
      : manifest_(Json::parse(test::read_file(GetParam() / "manifest.json"))),
        file_(GetParam() / "golden.safetensors") {}

  // Returns the parameters of "out.NAME": a chain, of which the manifest may have more, or
  // "top_k_7".
  SamplingParams params(const std::string& name) const {
    Json steps = {{name.substr(0, name.rfind('_')), 0}};
    if (manifest_.contains("chains") && manifest_.at("chains").contains(name)) {
      steps = manifest_.at("chains").at(name);
    } else if (name == "chain") {
      steps = {{"repetition_penalty", 1.2}, {"temperature", 0.8}, {"top_k", 20}, {"top_p", 0.85}};
    } else {
      steps.begin().value() = Json::parse(name.substr(name.rfind('_') + 1));
    }
    SamplingParams params;
    params.temperature = 1;
    for (const auto& [step, value] : steps.items()) set(params, step, value);
    return params;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const std::string& tensor : file_.names()) {
      if (tensor.starts_with("out.")) found.push_back(tensor.substr(4));
    }
    return found;
  }

  Json manifest_;
  test::SafetensorsFile file_;
};

TEST_P(SamplingGoldenTest, SameTokensDroppedSameLogitsAndProbabilities) {
  const double tolerance = manifest_.at("tolerance").at("atol");
  const auto logits = file_.values<float>("logits");
  const auto wide = file_.values<int64_t>("history");
  const std::vector<int32_t> history(wide.begin(), wide.end());
  const auto rows = static_cast<size_t>(file_.shape("logits")[0]);
  const size_t vocab = logits.size() / rows, length = history.size() / rows;
  ASSERT_FALSE(names().empty());
  for (const std::string& name : names()) {
    SCOPED_TRACE(name);
    Sampler sampler(params(name));
    const auto want = file_.values<float>("out." + name);
    std::vector<float> probabilities;
    if (file_.has("probs." + name)) probabilities = file_.values<float>("probs." + name);
    for (size_t r = 0; r < rows; ++r) {
      auto begin = logits.begin() + static_cast<std::ptrdiff_t>(r * vocab);
      std::vector<float> row(begin, begin + static_cast<std::ptrdiff_t>(vocab));
      auto ids = std::span(history).subspan(r * length, length);
      auto golden = std::span(want).subspan(r * vocab, vocab);
      if (std::ranges::all_of(golden, [](float l) { return std::isinf(l); })) {
        EXPECT_THROW(sampler.distribution(row, {.ids = ids, .prompt_size = length}), Error);
        continue;
      }
      std::vector<const TokenProbability*> kept(vocab);
      auto distribution = sampler.distribution(row, {.ids = ids, .prompt_size = length});
      for (const TokenProbability& t : distribution) kept[static_cast<size_t>(t.id)] = &t;
      for (size_t i = 0; i < vocab; ++i) {
        ASSERT_EQ(kept[i] == nullptr, std::isinf(golden[i])) << "row " << r << " token " << i;
        if (kept[i] != nullptr) {
          EXPECT_NEAR(kept[i]->logit, golden[i], tolerance);
        }
        if (!probabilities.empty()) {
          EXPECT_NEAR(kept[i] ? kept[i]->probability : 0, probabilities[r * vocab + i], tolerance);
        }
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<fs::path>& fixture) {
  return fixture.param.filename().string();
}
INSTANTIATE_TEST_SUITE_P(Bundled, SamplingGoldenTest, testing::ValuesIn(bundled()), name_of);
INSTANTIATE_TEST_SUITE_P(Shared, SamplingGoldenTest, testing::ValuesIn(shared()), name_of);

TEST(SamplingGoldens, SharedOnesRunToo) {
  if (shared().empty()) GTEST_SKIP() << "no shared fixtures here (SLUICE_ORACLE)";
}

}  // namespace
}  // namespace sluice
