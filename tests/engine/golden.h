// Models with what Hugging Face transformers computes for them: which there are, how they are run,
// and how far results may be from theirs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/engine/session.h"
#include "src/models/families.h"
#include "tests/support/safetensors.h"
#include "tests/support/temp.h"

namespace sluice::test {

inline bool is_supported(const std::filesystem::path& model) {
  Json config = Json::parse(read_file(model / "config.json"));
  return std::ranges::any_of(families(), [&](const Family& f) {
    return f.architecture == config.at("architectures").at(0).get<std::string>();
  });
}

// The bundled ones, and all of supported architectures where the shared folder is there.
inline std::vector<std::filesystem::path> golden_models() {
  namespace fs = std::filesystem;
  std::vector<fs::path> found;
  for (const fs::path& root :
       {source_dir() / "tests/data/models", oracle_dir() / "models", oracle_dir() / "text"}) {
    if (!fs::is_directory(root)) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (is_supported(entry.path())) found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

inline std::string golden_name(const std::filesystem::path& model) {
  bool bundled = model.string().find("tests/data") != std::string::npos;
  return (bundled ? "bundled_" : "shared_") + model.filename().string();
}

struct Outcome {
  std::vector<std::vector<float>> logits;  // of each position
  std::vector<int32_t> greedy;
};

// The logits of a prompt, in chunks of at most `chunk` tokens, and the tokens that follow it. The
// session has been loaded.
inline Outcome run_prompt(Session& session, const std::vector<int32_t>& prompt, int64_t new_tokens,
                          int64_t chunk) {
  int64_t length = std::ssize(prompt);
  Runner& runner = session.runner();
  Outcome result;
  {
    Sequence sequence = runner.new_sequence();
    int64_t step = std::min(chunk, runner.max_logits_rows());
    for (int64_t at = 0; at < length; at += step) {
      auto ids = std::span(prompt).subspan(static_cast<size_t>(at),
                                           static_cast<size_t>(std::min(step, length - at)));
      Tensor logits = runner.logits(runner.step(sequence, ids, length));
      for (int64_t r = 0; r < logits.rows; ++r) {
        result.logits.emplace_back(logits.row<float>(r), logits.row<float>(r) + logits.cols);
      }
    }
  }
  if (new_tokens == 0) return result;
  Request request;
  request.prompt = prompt;
  request.max_tokens = new_tokens;
  Engine engine(runner, nullptr, 1);
  OutputId id{engine.add(request), 0};
  while (!engine.idle()) engine.step({});
  result.greedy = engine.take(id).ids;
  return result;
}

// Of logits of the same prompt.
inline double mean_difference(const Outcome& a, const Outcome& b) {
  double sum = 0;
  size_t count = 0;
  for (size_t r = 0; r < a.logits.size(); ++r) {
    for (size_t c = 0; c < a.logits[r].size(); ++c, ++count)
      sum += std::abs(a.logits[r][c] - b.logits[r][c]);
  }
  return sum / static_cast<double>(count);
}

// Of logits of about 1, between a GPU's and a CPU's: sums in another order, and codes that fall
// otherwise; in bf16 attention, too, which is rounded where many rows or the CPU compute it. Where
// that moves an activation to the next code of E4M3, it moves by a 16th.
inline double most_difference_of_devices(std::string_view scheme, DtypeChoice dtype) {
  if (dtype == DtypeChoice::f32) return 0.005;
  return scheme.starts_with("fp8_dynamic") ? 0.25 : 0.1;
}

struct Golden {
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;
  std::vector<float> logits;
};

class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& model)
      : manifest_(Json::parse(read_file(model / "manifest.json"))),
        file_(model / "golden.safetensors") {}
  size_t prompts() const { return manifest_.at("prompts").size(); }
  Golden golden(size_t i) const {
    std::string p = "prompt" + std::to_string(i);
    auto narrow = [](const std::vector<int64_t>& wide) {
      return std::vector<int32_t>(wide.begin(), wide.end());
    };
    return {narrow(file_.values<int64_t>(p + ".input_ids")),
            narrow(file_.values<int64_t>(p + ".greedy_ids")), file_.values<float>(p + ".logits")};
  }

  void expect_float32(const Outcome& actual, const Golden& golden) const {
    double atol = tolerance("fp32_atol"), rtol = tolerance("fp32_rtol");
    size_t vocab = actual.logits[0].size();
    ASSERT_EQ(actual.logits.size() * vocab, golden.logits.size());
    for (size_t j = 0; j < golden.logits.size(); ++j) {
      float expected = golden.logits[j];
      ASSERT_LE(std::abs(actual.logits[j / vocab][j % vocab] - expected),
                atol + rtol * std::abs(expected))
          << "position " << j / vocab << " token " << j % vocab;
    }
  }

  void expect_bfloat16(const Outcome& actual, const Golden& golden) const {
    std::vector<double> errors;
    size_t vocab = actual.logits[0].size();
    ASSERT_EQ(actual.logits.size() * vocab, golden.logits.size());
    for (size_t j = 0; j < golden.logits.size(); ++j) {
      errors.push_back(std::abs(actual.logits[j / vocab][j % vocab] - golden.logits[j]));
    }
    std::ranges::sort(errors);
    double sum = 0;
    for (double e : errors) sum += e;
    EXPECT_LE(sum / static_cast<double>(errors.size()), tolerance("bf16_mean_abs"));
    EXPECT_LE(errors[errors.size() * 99 / 100], tolerance("bf16_p99_abs"));
    EXPECT_LE(errors.back(), tolerance("bf16_max_abs"));
  }

 private:
  double tolerance(const char* key) const {
    return manifest_.at("tolerance").at(key).get<double>();
  }

  Json manifest_;
  SafetensorsFile file_;
};

}  // namespace sluice::test
