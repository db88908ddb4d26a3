// Every combination of tie_word_embeddings and what the checkpoint stores, with what transformers
// 5.24 makes of it.
#include "src/models/embeddings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

struct Case {
  std::optional<bool> flag;
  std::string_view embedding, head;  // values that are stored; empty: none
  std::string_view from;             // the tensor that the embedding is read from
  bool tied;                         // so is the head
  bool warns = false;
};

// Long enough that the last chunk of a comparison is another than the first.
constexpr int64_t kRows = 700, kCols = 1000;

std::string values(std::string_view kind) {
  std::string bytes(static_cast<size_t>(kRows * kCols * 2), kind == "H" ? 'h' : 'e');
  if (kind == "E'") bytes.back() = 'x';
  return bytes;
}

TEST(Embeddings, AreWhatFlagAndTensorsSay) {
  const std::vector<Case> cases{
      {true, "E", "", kEmbedding, true},
      {true, "", "H", kHead, true},
      {true, "E", "E", kEmbedding, true},
      {true, "E", "H", kEmbedding, false, true},
      {true, "E", "E'", kEmbedding, false, true},
      {true, "", "", kEmbedding, true},  // bind refuses: missing
      // Not tied: the reference makes up what is missing, with a warning; bind refuses it.
      {false, "E", "", kEmbedding, false},
      {false, "", "H", kEmbedding, false},
      {false, "E", "E", kEmbedding, false},
      {false, "E", "H", kEmbedding, false},
      {std::nullopt, "E", "", kEmbedding, false},
      {std::nullopt, "E", "H", kEmbedding, false},
  };
  for (const Case& c : cases) {
    for (size_t shards : {size_t{1}, size_t{2}}) {
      SCOPED_TRACE(fmt::format("{} '{}' '{}' in {}", c.flag ? int{*c.flag} : -1, c.embedding,
                               c.head, shards));
      std::vector<test::TinyTensor> tensors{{"model.norm.weight", {2}, "BF16", "nnnn"}};
      for (auto [name, kind] : {std::pair{kEmbedding, c.embedding}, {kHead, c.head}}) {
        if (!kind.empty())
          tensors.push_back({std::string(name), {kRows, kCols}, "BF16", values(kind)});
      }
      test::TempDir dir;
      test::write_checkpoint(dir.path(), Json::object(), tensors, std::min(shards, tensors.size()));
      DecoderSpec spec;
      spec.tie_word_embeddings = c.flag.value_or(false);
      testing::internal::CaptureStderr();
      const io::CheckpointIndex index = io::open_checkpoint(dir.path());
      choose_embeddings(spec, index, StoredFormats(Json::object(), index));
      EXPECT_EQ(spec.tie_word_embeddings, c.tied);
      EXPECT_EQ(spec.embedding_from_head, c.from == kHead);
      EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), !c.warns);
    }
  }
}

// A head may be codes under the names of any format.
TEST(Embeddings, AHeadThatIsQuantizedIsItsOwn) {
  const auto compressed =
      Json{{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}};
  const Json gptq{{"quant_method", "gptq"}, {"bits", 4}}, torchao{{"quant_method", "torchao"}};
  for (const auto& [method, codes] : {std::pair{compressed, "lm_head.weight_packed"},
                                      {gptq, "lm_head.qweight"},
                                      {torchao, "lm_head._weight_qdata"},
                                      {Json{{"quant_method", "hqq"}}, "lm_head.W_q"}}) {
    SCOPED_TRACE(codes);
    test::TempDir dir;
    test::write_checkpoint(dir.path(), Json::object(),
                           {{std::string(kEmbedding), {kRows, kCols}, "BF16", values("E")},
                            {codes, {2}, "BF16", "nnnn"}},
                           1);
    const io::CheckpointIndex index = io::open_checkpoint(dir.path());
    for (const bool known : {false, true}) {
      const StoredFormats formats(known ? Json{{"quantization_config", method}} : Json::object(),
                                  index);
      DecoderSpec spec;
      spec.tie_word_embeddings = true;
      choose_embeddings(spec, index, formats);
      EXPECT_EQ(spec.tie_word_embeddings, !known);
      leave_out_head(spec, formats);
      EXPECT_TRUE(spec.has_head);
      spec.tie_word_embeddings = false;
      leave_out_head(spec, formats);
      EXPECT_EQ(spec.has_head, known);
    }
  }
}

}  // namespace
}  // namespace sluice
