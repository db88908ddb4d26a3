// Every form of weights, cut for several ranks: stored formats, schemes, and weights on disk.
#include <gtest/gtest.h>

#include <string>

#include "quant/scheme.h"
#include "tests/engine/on_ranks.h"
#include "tests/support/checkpoint.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::How;
using test::Outcome;

// Returns what ranks compute, or none where they refuse to divide the model, in one sentence.
std::optional<Outcome> run_if_divided(const fs::path& model, const std::vector<int32_t>& prompt,
                                      int64_t more, int size, const How& how) {
  Outcome outcome;
  const auto fault = test::try_ranks(model, size, how, [&](test::OnRank& rank) {
    outcome = test::lead_prompt(rank, prompt, more, how.chunk);
  });
  if (!fault) return outcome;
  const std::string text = fault->what();
  EXPECT_NE(text.find("divide"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return std::nullopt;
}

std::vector<fs::path> formats() {
  std::vector<fs::path> all = test::models_in(test::source_dir() / "tests/data/formats");
  if (test::oracle_dir().empty() || !test::runs_all()) return all;
  for (const fs::path& format : test::models_in(test::oracle_dir() / "formats"))
    if (fs::exists(format / "golden.safetensors") && test::is_supported(format) &&
        !fs::exists(test::source_dir() / "tests/data/formats" / format.filename()))
      all.push_back(format);
  return all;
}

class RanksFormats : public testing::TestWithParam<fs::path> {};

TEST_P(RanksFormats, ComputeTheGoldenLogitsOrRefuse) {
  const test::GoldenFile file(GetParam());
  const test::Golden golden = file.golden(file.prompts() - 1);
  const auto more = std::ssize(golden.greedy);
  for (int size : {2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    const How how{.dtype = DtypeChoice::f32, .threads = 1};
    const std::optional<Outcome> all = run_if_divided(GetParam(), golden.ids, more, size, how);
    if (!all) continue;
    file.expect_float32(*all, golden);
    EXPECT_EQ(all->greedy, golden.greedy);
    const test::TempDir spill;
    for (int run = 0; run < 2; ++run) {  // one writes the copies, one finds them
      const How streamed{.dtype = DtypeChoice::f32,
                         .threads = 1,
                         .chunk = 3,
                         .place = "layers=disk",
                         .spill = spill.path()};
      EXPECT_EQ(test::run_on_ranks(GetParam(), golden.ids, 0, size, streamed).logits, all->logits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksFormats, testing::ValuesIn(formats()), test::golden_name);

class RanksOnDisk : public testing::Test {
 protected:
  RanksOnDisk() {
    test::Random random("RanksOnDisk");
    Json config = test::tiny_config();
    config["num_attention_heads"] = config["num_key_value_heads"] = 12;
    config["head_dim"] = 64;
    config["hidden_size"] = 256;
    config["intermediate_size"] = 1536;
    config["vocab_size"] = 2000;
    config["num_hidden_layers"] = 2;
    test::write_checkpoint(dir_.path(), config, test::tiny_tensors(config, random));
  }
  fs::path model() const { return dir_.path(); }
  const std::vector<int32_t> prompt_{5, 600, 7, 1800, 9};

 private:
  test::TempDir dir_;
};

// The error of a scheme on ranks is about that on one.
TEST_F(RanksOnDisk, SchemesChangeWhatTheyChangeOnOneRank) {
  constexpr double kMore = 1.5, kRounding = 1e-4;
  const How plain{.dtype = DtypeChoice::f32, .threads = 1};
  const Outcome exact = test::run_on_ranks(model(), prompt_, 0, 1, plain);
  for (const QuantScheme& scheme : quant_schemes()) {
    How how = plain;
    how.scheme = scheme.name;
    const double one =
        test::relative_difference(exact, test::run_on_ranks(model(), prompt_, 0, 1, how));
    for (int size : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << scheme.name << " on " << size << " ranks");
      const auto all = run_if_divided(model(), prompt_, 0, size, how);
      EXPECT_TRUE(all || size > 2);
      if (!all) continue;
      EXPECT_LE(test::relative_difference(exact, *all), kMore * one + kRounding);
      how.threads = 2;
      how.chunk = 2;
      EXPECT_EQ(test::run_on_ranks(model(), prompt_, 0, size, how).logits, all->logits);
      how.threads = 1;
      how.chunk = plain.chunk;
    }
  }
}

// Ranks exchange parts of the rows that they share in each pass, or in the first one, which writes
// them to each rank's spill cache: all together read the checkpoint once a pass.
TEST_F(RanksOnDisk, ReadTheirBytesAlone) {
  constexpr int64_t kMore = 40;
  uint64_t alone = 0;
  for (int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    const How resident{.dtype = DtypeChoice::f32, .threads = 1};
    const Outcome expected = test::run_on_ranks(model(), prompt_, kMore, size, resident);
    const test::TempDir spill;
    How how = resident;
    how.place = "*=disk";
    for (int run = 0; run < 3; ++run) {
      if (run > 0) how.spill = spill.path();
      std::vector<uint64_t> read(static_cast<size_t>(size));
      Outcome outcome;
      const auto fault = test::try_ranks(
          model(), size, how,
          [&](test::OnRank& rank) { outcome = test::lead_prompt(rank, prompt_, kMore, how.chunk); },
          [&](test::OnRank& rank, int r) {
            read[static_cast<size_t>(r)] = rank.model->stream_report()->io.bytes_requested;
          });
      EXPECT_FALSE(fault) << fault->what();
      EXPECT_EQ(outcome.logits, expected.logits);
      EXPECT_EQ(outcome.greedy, expected.greedy);
      if (size == 1) alone = read.front();
      for (uint64_t bytes : read)
        EXPECT_LE(static_cast<double>(bytes), 1.05 / size * static_cast<double>(alone)) << run;
    }
  }
}

TEST(RanksExperts, OnDiskHaveTheSameBits) {
  for (const char* name : {"mixtral", "qwen3_5_moe", "gpt_oss", "kimi_k2"}) {
    for (int size : {2, 3}) {
      SCOPED_TRACE(testing::Message() << name << " on " << size << " ranks");
      const fs::path model = test::bundled_model(name);
      const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6};
      How how{.dtype = DtypeChoice::f32, .threads = 1};
      const auto resident = run_if_divided(model, prompt, 8, size, how);
      EXPECT_TRUE(resident || size > 2);
      if (!resident) continue;
      const test::TempDir spill;
      how.place = "experts=disk";
      how.spill = spill.path();
      for (int run = 0; run < 2; ++run) {
        const Outcome streamed = test::run_on_ranks(model, prompt, 8, size, how);
        EXPECT_EQ(streamed.logits, resident->logits);
        EXPECT_EQ(streamed.greedy, resident->greedy);
      }
    }
  }
}

// Each rank has some of the experts, whole.
TEST(RanksExperts, MayBeWhole) {
  for (const char* name :
       {"mixtral", "qwen3_5_moe", "gpt_oss", "kimi_k2", "llama4_text", "gemma4_text_moe"}) {
    const fs::path model = test::bundled_model(name);
    const test::GoldenFile file(model);
    const test::Golden golden = file.golden(0);
    const auto more = std::ssize(golden.greedy);
    for (int size : {2, 3}) {
      SCOPED_TRACE(testing::Message() << name << " on " << size << " ranks");
      How how{.dtype = DtypeChoice::f32, .threads = 1, .whole_experts = true};
      const auto resident = run_if_divided(model, golden.ids, more, size, how);
      EXPECT_TRUE(resident || size > 2);
      if (!resident) continue;
      file.expect_float32(*resident, golden);
      const test::TempDir spill;
      how.place = "experts=disk";
      how.spill = spill.path();
      how.chunk = 3;
      const Outcome streamed = test::run_on_ranks(model, golden.ids, more, size, how);
      EXPECT_EQ(streamed.logits, resident->logits);
      EXPECT_EQ(streamed.greedy, resident->greedy);
    }
  }
  const How how{.whole_experts = true};
  const auto fault = test::try_ranks(test::bundled_model("llama_rope_dynamic"), 2, how,
                                     [](test::OnRank&) { FAIL(); });
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind(), ErrorKind::usage);
}

}  // namespace
}  // namespace sluice
