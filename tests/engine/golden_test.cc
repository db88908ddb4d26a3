// Whole models against Hugging Face transformers: logits within the manifest's tolerance, greedy
// tokens, and the same bits however the work is divided.
#include "tests/engine/golden.h"

#include <gtest/gtest.h>

#include <optional>

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
  return test::run_prompt(session, prompt, new_tokens, how.chunk);
}

class GoldenTest : public testing::TestWithParam<fs::path> {
 protected:
  test::GoldenFile file_{GetParam()};
};

TEST_P(GoldenTest, Float32LogitsAndGreedyTokens) {
  for (Isa isa : {Isa::reference, Isa::automatic}) {
    for (size_t i = 0; i < file_.prompts(); ++i) {
      SCOPED_TRACE(testing::Message() << "prompt " << i);
      test::Golden golden = file_.golden(i);
      Outcome actual = run_model(GetParam(), golden.ids, std::ssize(golden.greedy), {.isa = isa});
      EXPECT_EQ(actual.greedy, golden.greedy);
      file_.expect_float32(actual, golden);
    }
  }
}

TEST_P(GoldenTest, Bfloat16WithinItsTolerance) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512_bf16, Isa::amx}) {
    if (!isa_supported(isa)) continue;
    for (size_t i = 0; i < file_.prompts(); ++i) {
      SCOPED_TRACE(testing::Message() << "prompt " << i);
      test::Golden golden = file_.golden(i);
      file_.expect_bfloat16(
          run_model(GetParam(), golden.ids, 1, {.dtype = DtypeChoice::bf16, .isa = isa}), golden);
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
  test::Golden golden = file_.golden(file_.prompts() - 1);
  for (DtypeChoice dtype : {DtypeChoice::bf16, DtypeChoice::f32}) {
    for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "fp8_dynamic",
                               "fp8_dynamic_per_block", "int8"}) {
      expect_same_bits(GetParam(), golden.ids, {.dtype = dtype, .scheme = scheme});
    }
  }
  for (DType kv : {DType::f8_e4m3, DType::f8_e5m2}) {
    expect_same_bits(GetParam(), golden.ids, {.dtype = DtypeChoice::bf16, .kv_dtype = kv});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(test::golden_models()),
                         [](const auto& test) { return test::golden_name(test.param); });

}  // namespace
}  // namespace sluice
