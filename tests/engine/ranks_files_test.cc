// Checkpoints that are cut for ranks: each reads its own files, and all compute the same bits.
#include <gtest/gtest.h>

#include <string>

#include "src/engine/checkpoint.h"
#include "src/load/sharded_state.h"
#include "src/models/gguf/gguf.h"
#include "tests/engine/on_ranks.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Cuts a model for so many ranks; the error where that is refused.
std::optional<Error> cut_files(const fs::path& model, int size, const fs::path& to) {
  Ledger ledger;
  const Buffer block(ledger, Use::staging, "files", uint64_t{64} << 10, Buffer::Touch::lazily);
  const bool is_gguf = io::is_gguf(model);
  std::optional<io::GgufCheckpoint> gguf;
  if (is_gguf) gguf = open_gguf_parts(model);
  try {
    for (int r = 0; r < size; ++r) {
      Checkpoint checkpoint(model, true, {r, size}, false, {});
      write_sharded_state(checkpoint.model(), checkpoint.index(), gguf ? &*gguf : nullptr,
                          to / sharded_state_file(r, is_gguf), block.bytes(), {});
    }
  } catch (const Error& e) {
    return e;
  }
  for (const char* name :
       {"config.json", "generation_config.json", "hf_quant_config.json", "tokenizer.json"})
    if (fs::exists(model / name)) fs::copy_file(model / name, to / name);
  return std::nullopt;
}

class RanksFiles : public testing::TestWithParam<fs::path> {};

TEST_P(RanksFiles, GiveTheSameBits) {
  const test::GoldenFile file(GetParam());
  const test::Golden golden = file.golden(0);
  int done = 0;
  for (int size : {2, 3}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    const test::TempDir dir;
    const auto fault = cut_files(GetParam(), size, dir.path());
    if (fault) {
      EXPECT_EQ(fault->kind(), ErrorKind::usage) << fault->what();
      continue;
    }
    ++done;
    const test::How how{.dtype = DtypeChoice::f32, .threads = 1};
    const test::Outcome whole = test::run_on_ranks(GetParam(), golden.ids, 4, size, how);
    const test::Outcome cut = test::run_on_ranks(dir.path(), golden.ids, 4, size, how);
    EXPECT_EQ(cut.logits, whole.logits);
    EXPECT_EQ(cut.greedy, whole.greedy);
    if (size == 2) {
      const test::TempDir spill;  // for what is stored [inputs, outputs]
      const test::How streamed{
          .dtype = DtypeChoice::f32, .threads = 1, .place = "*=disk", .spill = spill.path()};
      EXPECT_EQ(test::run_on_ranks(dir.path(), golden.ids, 0, size, streamed).logits, whole.logits);
    }
  }
  EXPECT_GT(done, 0);
}

std::vector<fs::path> models_of_the_hub() {
  std::vector<fs::path> models = test::bundled_models();
  std::erase_if(models, [](const fs::path& m) { return test::model_in(m) != m; });
  return models;  // GGUF files are among the formats
}

INSTANTIATE_TEST_SUITE_P(Bundled, RanksFiles, testing::ValuesIn(models_of_the_hub()),
                         test::golden_name);

std::vector<fs::path> formats_of_the_hub() {
  std::vector<fs::path> all = test::models_in(test::source_dir() / "tests/data/formats");
  if (!test::oracle_dir().empty() && test::runs_all()) {
    for (const fs::path& format : test::models_in(test::oracle_dir() / "formats"))
      if (fs::exists(format / "golden.safetensors") && test::is_supported(format) &&
          !fs::exists(test::source_dir() / "tests/data/formats" / format.filename()))
        all.push_back(format);
  }
  std::erase_if(all, [](const fs::path& m) {
    return test::model_in(m) != m && !io::is_gguf(test::model_in(m));
  });
  return all;
}

class RanksFormatFiles : public testing::TestWithParam<fs::path> {};

// Codes, scales and zeros are cut as stored. What ranks cannot divide, or would have to share, is
// refused in a sentence.
TEST_P(RanksFormatFiles, GiveTheSameBits) {
  const test::Golden golden = test::GoldenFile(GetParam()).golden(0);
  for (int size : {2, 3}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    const test::TempDir dir;
    if (const auto fault = cut_files(test::model_in(GetParam()), size, dir.path())) {
      const std::string text = fault->what();
      EXPECT_TRUE(text.find("divide") != std::string::npos ||
                  text.find("belong to weights of two ranks") != std::string::npos)
          << text;
      continue;
    }
    const test::How how{.dtype = DtypeChoice::f32, .threads = 1};
    EXPECT_EQ(test::run_on_ranks(dir.path(), golden.ids, 0, size, how).logits,
              test::run_on_ranks(GetParam(), golden.ids, 0, size, how).logits);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksFormatFiles, testing::ValuesIn(formats_of_the_hub()),
                         test::golden_name);

// Sizes that only whole tensors tell: of per-layer embeddings, of low ranks, of states.
TEST(RanksGgufFiles, HaveTheSizesOfTheModel) {
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
  for (const char* name : {"gemma4_e", "kimi_linear", "jamba_dense"}) {
    SCOPED_TRACE(name);
    const fs::path model = test::source_dir() / "tests/data/gguf" / fmt::format("{}.gguf", name);
    const test::TempDir dir;
    const auto fault = cut_files(model, 2, dir.path());
    ASSERT_FALSE(fault) << fault->what();
    const test::How how{.dtype = DtypeChoice::f32, .threads = 1};
    EXPECT_EQ(test::run_on_ranks(dir.path(), prompt, 4, 2, how).logits,
              test::run_on_ranks(model, prompt, 4, 2, how).logits);
  }
}

TEST(RanksOwnFiles, AreForSoManyRanks) {
  const test::TempDir dir;
  ASSERT_FALSE(cut_files(test::bundled_model("llama_rope_dynamic"), 2, dir.path()));
  try {
    Checkpoint checkpoint(dir.path(), true);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is cut for 2 ranks"), std::string::npos) << e.what();
  }
  fs::rename(dir / "model-rank-0-part-0.safetensors", dir / "elsewhere");
  const Checkpoint second(dir.path(), true, {1, 2});  // on a host that has no other rank's
  EXPECT_EQ(second.index().files().size(), 1U);
  const auto fault = test::try_ranks(dir.path(), 4, {}, [](test::OnRank&) { FAIL(); });
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind(), ErrorKind::refused);
}

}  // namespace
}  // namespace sluice
