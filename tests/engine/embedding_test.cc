// Vectors of prompts against transformers, and the same bits whatever runs beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/golden.h"

namespace sluice {
namespace {

Json goldens() {
  return Json::parse(test::read_file(test::source_dir() / "tests/data/embeddings.json"));
}

class LoadedForVectors {
 public:
  LoadedForVectors(const std::string& model, DtypeChoice dtype) : planner_(options(model, dtype)) {
    loaded_.emplace(planner_, planner_.place(planner_.run_shape(400, 13, 4)));  // steps of few rows
  }

  // Returns the vector of each request.
  std::vector<std::vector<float>> run(const std::vector<Request>& requests) {
    Engine engine(loaded_->runner(), nullptr, 8);
    std::vector<int64_t> ids;
    for (const Request& r : requests) ids.push_back(engine.add(r));
    while (!engine.idle()) engine.step({});
    std::vector<std::vector<float>> vectors;
    for (int64_t id : ids) vectors.push_back(engine.take({id, 0}).embedding);
    return vectors;
  }

 private:
  static ModelOptions options(const std::string& model, DtypeChoice dtype) {
    ModelOptions o;
    o.model = test::bundled_model(model.c_str());
    o.dtype = dtype;
    o.threads = 1;
    return o;
  }
  Planner planner_;
  std::optional<LoadedModel> loaded_;
};

Request vector_of(const Json& golden, Pooling pooling) {
  Request r;
  r.prompt = golden.at("prompt").get<std::vector<int32_t>>();
  r.pooling = pooling;
  return r;
}

double cosine(const std::vector<float>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    ab += x * b[i];
    aa += x * x;
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

TEST(Embeddings, AreThoseOfTransformers) {
  for (const Json& golden : goldens()) {
    SCOPED_TRACE(golden.at("model").get<std::string>());
    for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
      LoadedForVectors loaded(golden.at("model"), dtype);
      for (const auto& [name, pooling] :
           {std::pair{"last", Pooling::last}, std::pair{"mean", Pooling::mean}}) {
        const auto want = golden.at(name).get<std::vector<double>>();
        const std::vector<float> have = loaded.run({vector_of(golden, pooling)})[0];
        ASSERT_EQ(have.size(), want.size());
        if (dtype == DtypeChoice::bf16) {
          EXPECT_GT(cosine(have, want), 0.99) << name;
          continue;
        }
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_NEAR(static_cast<double>(have[i]), want[i], 2e-4) << name << " " << i;
      }
    }
  }
}

TEST(Embeddings, HaveTheSameBitsWhateverRunsBesideThem) {
  const Json all = goldens();
  for (const char* model : {"llama_tied", "qwen3_5"}) {
    SCOPED_TRACE(model);
    LoadedForVectors loaded(model, DtypeChoice::automatic);
    std::vector<Request> requests;
    for (const Json& golden : all) {
      if (golden.at("model") != model) continue;
      for (Pooling pooling : {Pooling::last, Pooling::mean, Pooling::first, Pooling::max,
                              Pooling::weighted_mean, Pooling::root_mean})
        requests.push_back(vector_of(golden, pooling));
    }
    ASSERT_EQ(requests.size(), 12);
    std::vector<std::vector<float>> alone;
    for (const Request& r : requests) alone.push_back(loaded.run({r})[0]);
    Request other;  // that generates
    other.prompt = requests[2].prompt;
    other.max_tokens = 20;
    std::vector<Request> beside{other};
    beside.insert(beside.end(), requests.begin(), requests.end());
    const std::vector<std::vector<float>> together = loaded.run(beside);
    EXPECT_TRUE(together[0].empty());
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i + 1], alone[i]) << i;
  }
}

// A token's row does not depend on what comes behind it.
TEST(Embeddings, OtherPoolingsAreOfTheRowsOfEachToken) {
  LoadedForVectors loaded("llama_tied", DtypeChoice::f32);
  const Json golden = goldens()[0];
  const auto whole = vector_of(golden, Pooling::last);
  std::vector<Request> of_each;
  for (size_t tokens = 1; tokens <= whole.prompt.size(); ++tokens) {
    of_each.push_back(whole);
    of_each.back().prompt.resize(tokens);
  }
  const std::vector<std::vector<float>> rows = loaded.run(of_each);
  const auto n = static_cast<double>(rows.size());
  std::vector<Request> requests;
  for (Pooling pooling : {Pooling::first, Pooling::max, Pooling::weighted_mean, Pooling::root_mean})
    requests.push_back(vector_of(golden, pooling));
  const std::vector<std::vector<float>> have = loaded.run(requests);
  for (size_t i = 0; i < rows[0].size(); ++i) {
    float largest = rows[0][i];
    double weighted = 0, sum = 0;
    for (size_t t = 0; t < rows.size(); ++t) {
      largest = std::max(largest, rows[t][i]);
      weighted += static_cast<double>(t + 1) * static_cast<double>(rows[t][i]);
      sum += static_cast<double>(rows[t][i]);
    }
    EXPECT_NEAR(have[0][i], rows[0][i], 1e-5);
    EXPECT_NEAR(have[1][i], largest, 1e-5);
    EXPECT_NEAR(static_cast<double>(have[2][i]), weighted / (n * (n + 1) / 2), 1e-5);
    EXPECT_NEAR(static_cast<double>(have[3][i]), sum / std::sqrt(n), 1e-5);
  }
}

TEST(Embeddings, NoTokensComeBehindThem) {
  Request r = vector_of(goldens()[0], Pooling::last);
  r.max_tokens = 1;
  EXPECT_THROW(check_request(r, 1000, false), Error);
}

}  // namespace
}  // namespace sluice
