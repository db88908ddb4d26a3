// Whole models against Hugging Face transformers: logits within the manifest's tolerance, greedy
// tokens, and the same bits however the work is divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "io/file.h"
#include "src/base/units.h"
#include "src/engine/engine.h"
#include "src/engine/session.h"
#include "src/models/families.h"
#include "tests/support/safetensors.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

bool is_supported(const fs::path& model) {
  Json config = Json::parse(test::read_file(model / "config.json"));
  return std::ranges::any_of(families(), [&](const Family& f) {
    return f.architecture == config.at("architectures").at(0).get<std::string>();
  });
}

// The bundled fixtures, and all of supported architectures where the shared folder is there.
std::vector<fs::path> fixtures() {
  std::vector<fs::path> found;
  for (const fs::path& root : {fs::path(SLUICE_SOURCE_DIR) / "tests/data/models",
                               test::oracle_dir() / "models", test::oracle_dir() / "text"}) {
    if (!fs::is_directory(root)) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (is_supported(entry.path())) found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

struct Outcome {
  std::vector<std::vector<float>> logits;  // of each position
  std::vector<int32_t> greedy;
};

struct How {
  DtypeChoice dtype = DtypeChoice::f32;
  Isa isa = Isa::automatic;
  int threads = 2;
  io::ReaderKind reader = io::ReaderKind::automatic;
  int64_t chunk = 512;
  int64_t block_size = 16;
  const char* scheme = "none";
  std::optional<DType> kv_dtype = {};
};

Outcome run_model(const fs::path& model, const std::vector<int32_t>& prompt, int64_t new_tokens,
                  const How& how) {
  SessionOptions options;
  options.model = model;
  options.dtype = how.dtype;
  options.isa = how.isa;
  options.threads = how.threads;
  options.reader = how.reader;
  options.block_size = how.block_size;
  options.kv_dtype = how.kv_dtype;
  options.quantize.scheme = *find_quant_scheme(how.scheme);
  Session session(options);
  int64_t length = std::ssize(prompt);
  session.place(session.run_shape(length + new_tokens, length, length));
  LoadProgress progress;
  session.load(progress, {});
  Runner& runner = session.runner();
  Outcome result;
  {
    Sequence sequence = runner.new_sequence();
    int64_t step = std::min(how.chunk, runner.max_logits_rows());
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

struct Golden {
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;
  std::vector<float> logits;
};

class GoldenTest : public testing::TestWithParam<fs::path> {
 protected:
  GoldenTest()
      : manifest_(Json::parse(test::read_file(GetParam() / "manifest.json"))),
        file_(GetParam() / "golden.safetensors") {}
  size_t prompts() const { return manifest_.at("prompts").size(); }
  Golden golden(size_t i) const {
    std::string p = "prompt" + std::to_string(i);
    auto narrow = [](const std::vector<int64_t>& wide) {
      return std::vector<int32_t>(wide.begin(), wide.end());
    };
    return {narrow(file_.values<int64_t>(p + ".input_ids")),
            narrow(file_.values<int64_t>(p + ".greedy_ids")), file_.values<float>(p + ".logits")};
  }
  double tolerance(const char* key) const {
    return manifest_.at("tolerance").at(key).get<double>();
  }

  Json manifest_;
  test::SafetensorsFile file_;
};

TEST_P(GoldenTest, Float32LogitsAndGreedyTokens) {
  for (Isa isa : {Isa::reference, Isa::automatic}) {
    for (size_t i = 0; i < prompts(); ++i) {
      Golden golden = this->golden(i);
      Outcome actual = run_model(GetParam(), golden.ids, std::ssize(golden.greedy), {.isa = isa});
      EXPECT_EQ(actual.greedy, golden.greedy) << "prompt " << i;
      double atol = tolerance("fp32_atol"), rtol = tolerance("fp32_rtol");
      size_t vocab = actual.logits[0].size();
      ASSERT_EQ(actual.logits.size() * vocab, golden.logits.size());
      for (size_t j = 0; j < golden.logits.size(); ++j) {
        float expected = golden.logits[j];
        ASSERT_LE(std::abs(actual.logits[j / vocab][j % vocab] - expected),
                  atol + rtol * std::abs(expected))
            << "prompt " << i << " position " << j / vocab << " token " << j % vocab;
      }
    }
  }
}

TEST_P(GoldenTest, Bfloat16WithinItsTolerance) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512_bf16, Isa::amx}) {
    if (!isa_supported(isa)) continue;
    for (size_t i = 0; i < prompts(); ++i) {
      Golden golden = this->golden(i);
      Outcome actual =
          run_model(GetParam(), golden.ids, 1, {.dtype = DtypeChoice::bf16, .isa = isa});
      std::vector<double> errors;
      size_t vocab = actual.logits[0].size();
      for (size_t j = 0; j < golden.logits.size(); ++j) {
        errors.push_back(std::abs(actual.logits[j / vocab][j % vocab] - golden.logits[j]));
      }
      std::ranges::sort(errors);
      double sum = 0;
      for (double e : errors) sum += e;
      EXPECT_LE(sum / static_cast<double>(errors.size()), tolerance("bf16_mean_abs"))
          << "prompt " << i;
      EXPECT_LE(errors[errors.size() * 99 / 100], tolerance("bf16_p99_abs")) << "prompt " << i;
      EXPECT_LE(errors.back(), tolerance("bf16_max_abs")) << "prompt " << i;
    }
  }
}

void expect_same_bits(const fs::path& model, const std::vector<int32_t>& ids, const How& standard) {
  Outcome first = run_model(model, ids, 4, standard);
  How threads = standard, chunks = standard, blocks = standard, pread = standard, mmap = standard;
  threads.threads = 3;
  chunks.chunk = 7;
  blocks.block_size = 5;
  pread.reader = io::ReaderKind::pread;
  mmap.reader = io::ReaderKind::mmap;
  for (const How& how : {threads, chunks, blocks, pread, mmap}) {
    Outcome other = run_model(model, ids, 4, how);
    EXPECT_EQ(other.logits, first.logits);
    EXPECT_EQ(other.greedy, first.greedy);
  }
}

TEST_P(GoldenTest, SameBitsHoweverTheWorkIsDivided) {
  Golden golden = this->golden(prompts() - 1);
  for (DtypeChoice dtype : {DtypeChoice::bf16, DtypeChoice::f32}) {
    for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "int8"}) {
      expect_same_bits(GetParam(), golden.ids, {.dtype = dtype, .scheme = scheme});
    }
  }
  for (DType kv : {DType::f8_e4m3, DType::f8_e5m2}) {
    expect_same_bits(GetParam(), golden.ids, {.dtype = DtypeChoice::bf16, .kv_dtype = kv});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(fixtures()), [](const auto& test) {
  const fs::path& p = test.param;
  bool bundled = p.string().find("tests/data") != std::string::npos;
  return (bundled ? "bundled_" : "shared_") + p.filename().string();
});

}  // namespace
}  // namespace sluice
