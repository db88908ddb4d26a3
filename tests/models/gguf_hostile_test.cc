// GGUF files whose metadata says what no model has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/models/registry.h"
#include "tests/support/gguf.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::GgufBuilder;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kFloats = 0;  // GGML_TYPE_F32

GgufBuilder two_layers(const std::string& architecture, const std::vector<int32_t>& kv_heads) {
  GgufBuilder b;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  b.string("general.architecture", architecture)
      .number(key("block_count"), uint32_t{2})
      .number(key("embedding_length"), uint32_t{8})
      .number(key("attention.head_count"), uint32_t{2})
      .numbers<int32_t>(key("attention.head_count_kv"), kv_heads)
      .tensor("token_embd.weight", {8, 10}, kFloats, std::string(320, 'e'));
  return b;
}

std::string hostile_refusal(const std::filesystem::path& path, io::OpeningRank rank) {
  try {
    read_model(*open_model(path, rank));
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
    return e.what();
  }
  return "accepted";
}

TEST(GgufHostile, TextsThatNoJsonHoldsAreRefused) {
  const TempDir dir;
  GgufBuilder b = two_layers("llama", {1, 1});
  b.number("llama.rope.scaling.factor", 4.0f).string("llama.rope.scaling.attn_factor", "\xff");
  test::write_file(dir / "model.gguf", b.build());
  EXPECT_THAT(hostile_refusal(dir / "model.gguf", {}),
              AllOf(HasSubstr("/rope_scaling/attention_factor"), HasSubstr("not printable")));
}

// A rank's file has the config of the model, which another header may stand beside.
TEST(GgufHostile, CutFilesWithAnotherConfigAreRefused) {
  const auto refusal_of = [](GgufBuilder b, int layers) {
    const TempDir dir;
    const Json config{{"architectures", {"LlamaForCausalLM"}},
                      {"hidden_size", 8},
                      {"num_attention_heads", 2},
                      {"num_hidden_layers", layers},
                      {"intermediate_size", 16},
                      {"vocab_size", 10}};
    b.string("sluice.config", config.dump());
    for (const char* name : {"model-rank-0-part-0.gguf", "model-rank-1-part-0.gguf"})
      test::write_file(dir / name, b.build());
    return hostile_refusal(dir.path(), {0, 2});
  };
  EXPECT_EQ(refusal_of(two_layers("llama", {2, 1}), 2), "accepted");
  EXPECT_THAT(refusal_of(two_layers("llama", {2, 1}), 4),
              HasSubstr("not as many as those numbers"));
  GgufBuilder factors = two_layers("gemma4", {1, 1});
  factors.tensor("rope_freqs.weight", {2}, kFloats, std::string(8, '1'));
  EXPECT_THAT(refusal_of(factors, 2), HasSubstr("factors of rotary frequencies that no layer"));
}

TEST(GgufHostile, ATablesRowsAreTheVocabularyWhateverUnitDimensionsItHas) {
  const TempDir dir;
  for (const std::vector<uint64_t>& dims : {std::vector<uint64_t>{8, 10}, {8, 10, 1}}) {
    GgufBuilder b;
    b.string("general.architecture", "llama").number("llama.block_count", uint32_t{1});
    b.tensor("token_embd.weight", dims, kFloats, std::string(320, 'e'));
    test::write_file(dir / "model.gguf", b.build());
    const Json config = open_model(dir / "model.gguf")->config();
    EXPECT_EQ(config.value("vocab_size", 0), 10);
  }
}

}  // namespace
}  // namespace sluice
