// Whole models against Hugging Face transformers: logits within the manifest's tolerance, greedy
// tokens, and the same bits however the work is divided.
#include "tests/engine/golden.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>

#include "tests/support/sanitized.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

struct How {
  DtypeChoice dtype = DtypeChoice::f32;
  Isa isa = Isa::automatic;
  int threads = 2;
  io::ReaderKind reader = io::ReaderKind::automatic;
  int64_t chunk = 512;
  int64_t block_size = 16;
  std::string_view scheme = "none";
  std::optional<DType> kv_dtype = {};
  const char* place = "";
  fs::path spill = {};
};

// A session for prompts of a golden file and `new_tokens` after each.
std::unique_ptr<Session> loaded(const fs::path& model, const std::vector<test::Golden>& goldens,
                                const How& how) {
  SessionOptions options;
  options.model = test::model_in(model);
  options.dtype = how.dtype;
  options.isa = how.isa;
  options.threads = how.threads;
  options.reader = how.reader;
  options.block_size = how.block_size;
  options.kv_dtype = how.kv_dtype;
  if (*how.place != 0) options.place = parse_place_rules(how.place);
  if (!how.spill.empty()) options.spill.directories = {how.spill};
  options.quantize.scheme = *find_quant_scheme(how.scheme);
  auto session = std::make_unique<Session>(options);
  int64_t prompt = 0, tokens = 0;
  for (const test::Golden& g : goldens) {
    prompt = std::max(prompt, std::ssize(g.ids));
    tokens = std::max(tokens, std::ssize(g.ids) + std::ssize(g.greedy));
  }
  session->place(session->run_shape(tokens, prompt, prompt));
  LoadProgress progress;
  session->load(progress, {});
  return session;
}

class GoldenTest : public testing::TestWithParam<fs::path> {
 protected:
  GoldenTest() {
    for (size_t i = 0; i < file_.prompts(); ++i) goldens_.push_back(file_.golden(i));
  }
  void SetUp() override { ASSERT_FALSE(goldens_.empty()); }

  test::GoldenFile file_{GetParam()};
  std::vector<test::Golden> goldens_;
};

TEST_P(GoldenTest, Float32LogitsAndGreedyTokens) {
  for (Isa isa : {Isa::reference, Isa::automatic}) {
    auto session = loaded(GetParam(), goldens_, {.isa = isa});
    for (const test::Golden& golden : goldens_) {
      SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
      Outcome actual = test::run_prompt(*session, golden.ids, std::ssize(golden.greedy), 512);
      EXPECT_EQ(actual.greedy, golden.greedy);
      file_.expect_float32(actual, golden);
    }
  }
}

TEST_P(GoldenTest, Bfloat16WithinItsTolerance) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512_bf16, Isa::amx}) {
    if (!isa_supported(isa)) continue;
    auto session = loaded(GetParam(), goldens_, {.dtype = DtypeChoice::bf16, .isa = isa});
    for (const test::Golden& golden : goldens_) {
      SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
      file_.expect_bfloat16(test::run_prompt(*session, golden.ids, 0, 512), golden);
    }
  }
}

TEST_P(GoldenTest, QuantizedWithinTheToleranceOfItsScheme) {
  for (const QuantScheme& scheme : quant_schemes()) {
    for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
      auto session = loaded(GetParam(), goldens_, {.dtype = dtype, .scheme = scheme.name});
      for (const test::Golden& golden : goldens_) {
        SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
        file_.expect_scheme(test::run_prompt(*session, golden.ids, 0, 512), golden, scheme.name);
      }
    }
  }
}

// What divides the work otherwise, each in one of the two.
void expect_same_bits(const fs::path& model, const test::Golden& golden, const How& standard) {
  auto run = [&](const How& how) {
    auto session = loaded(model, {golden}, how);
    return test::run_prompt(*session, golden.ids, 4, how.chunk);
  };
  Outcome first = run(standard);
  ASSERT_EQ(std::ssize(first.logits), std::ssize(golden.ids));
  ASSERT_EQ(first.greedy.size(), 4u);
  How one = standard, other = standard;
  one.threads = 3;
  one.block_size = 5;
  one.reader = io::ReaderKind::mmap;
  other.threads = 1;
  other.chunk = 7;
  other.reader = io::ReaderKind::pread;
  for (const How& how : {one, other}) {
    Outcome again = run(how);
    EXPECT_EQ(again.logits, first.logits);
    EXPECT_EQ(again.greedy, first.greedy);
  }
}

TEST_P(GoldenTest, SameBitsHoweverTheWorkIsDivided) {
  for (DtypeChoice dtype : {DtypeChoice::bf16, DtypeChoice::f32}) {
    for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "fp8_dynamic",
                               "fp8_dynamic_per_block", "int8"}) {
      SCOPED_TRACE(scheme);
      expect_same_bits(GetParam(), goldens_.back(), {.dtype = dtype, .scheme = scheme});
    }
  }
  for (DType kv : {DType::f8_e4m3, DType::f8_e5m2}) {
    SCOPED_TRACE(dtype_name(kv));
    expect_same_bits(GetParam(), goldens_.back(), {.dtype = DtypeChoice::bf16, .kv_dtype = kv});
  }
}

// Some layers, or all there is, on disk; what is quantized is spilled by the first run, and read
// from there by the second.
TEST_P(GoldenTest, SameBitsStreamedAndFromTheSpill) {
  for (DtypeChoice dtype : {DtypeChoice::bf16, DtypeChoice::f32}) {
    for (const char* scheme : {"none", "fp8_per_channel"}) {
      auto run = [&](const How& how) {
        auto session = loaded(GetParam(), {goldens_.back()}, how);
        return test::run_prompt(*session, goldens_.back().ids, 2, 20);
      };
      const Outcome resident = run({.dtype = dtype, .scheme = scheme});
      for (const char* place : {"1=disk", "*=disk"}) {
        test::TempDir spill;
        for (const char* start : {"first", "second"}) {
          SCOPED_TRACE(testing::Message() << scheme << ", " << place << ", " << start << " start");
          Outcome streamed =
              run({.dtype = dtype, .scheme = scheme, .place = place, .spill = spill.path()});
          EXPECT_EQ(streamed.logits, resident.logits);
          EXPECT_EQ(streamed.greedy, resident.greedy);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, GoldenTest,
                         testing::ValuesIn(test::kSanitized ? test::models_with_own_parts()
                                                            : test::bundled_models()),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, GoldenTest, testing::ValuesIn(test::shared_models()),
                         test::golden_name);

// A model that is gone takes its tests with it, unseen.
TEST(GoldenModels, TheBundledOnesAreHere) {
  std::set<std::string> names;
  for (const fs::path& model : test::bundled_models()) {
    names.insert(model.filename().string());
    EXPECT_TRUE(test::is_supported(model)) << model;
  }
  for (const char* name : {"llama_rope_dynamic",
                           "llama_tied",
                           "mistral_sliding",
                           "gguf_bf16_tied",
                           "gpt2_noprefix",
                           "gpt_neox",
                           "phi3_longrope",
                           "exaone4",
                           "falcon_grouped",
                           "glm4",
                           "gptj",
                           "phi",
                           "smollm3",
                           "apertus",
                           "bloom",
                           "cohere2",
                           "olmo3",
                           "gemma3",
                           "gemma4_text_dense",
                           "gemma4_e",
                           "qwen3_5",
                           "falcon_h1",
                           "lfm2",
                           "mamba2",
                           "mamba",
                           "falcon_mamba",
                           "jamba_dense",
                           "nemotron_h",
                           "cohere",
                           "falcon_alibi",
                           "phi_tied",
                           "stablelm",
                           "mixtral",
                           "glm4_moe",
                           "granitemoe",
                           "qwen3_5_moe"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(GoldenModels, SharedOnesRunToo) {
  if (test::shared_models().empty()) GTEST_SKIP() << "no shared fixtures here (SLUICE_ORACLE)";
}

}  // namespace
}  // namespace sluice
