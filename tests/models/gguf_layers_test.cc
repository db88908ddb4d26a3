// Layers of GGUF files that differ from one another.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/models/registry.h"
#include "tests/support/gguf.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::GgufBuilder;
using test::TempDir;

constexpr uint32_t kHalf = 1;

std::unique_ptr<ModelSource> open_file(const TempDir& dir, const GgufBuilder& builder) {
  test::write_file(dir / "model.gguf", builder.build());
  return open_model(dir / "model.gguf");
}

// A layer's own heads say where its q ends; layers without any may come first.
TEST(Gguf, LayersMayHaveHeadsOfTheirOwn) {
  TempDir dir;
  GgufBuilder b;
  b.string("general.architecture", "deci")
      .number("deci.context_length", uint32_t{64})
      .number("deci.embedding_length", uint32_t{8})
      .number("deci.block_count", uint32_t{2})
      .number("deci.attention.layer_norm_rms_epsilon", 1e-5f)
      .number("deci.attention.key_length", uint32_t{4})
      .number("deci.rope.dimension_count", uint32_t{4})
      .numbers<int32_t>("deci.attention.head_count", {0, 2})
      .numbers<int32_t>("deci.attention.head_count_kv", {0, 1})
      .numbers<int32_t>("deci.feed_forward_length", {16, 16})
      .tensor("token_embd.weight", {8, 10}, kHalf, std::string(160, 'e'))
      .tensor("blk.1.attn_qkv.weight", {8, 16}, kHalf, std::string(256, 'q'));
  const auto source = open_file(dir, b);
  const DecoderSpec spec = read_model(*source).spec;
  EXPECT_TRUE(spec.layer(0).mixers.empty());
  EXPECT_EQ(spec.layer(1).mixers.front().attention().kv_heads.units(), 1);
  const io::CheckpointIndex index = source->index();
  const io::StoredTensor* q = index.find("model.layers.1.self_attn.q_proj.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->shape, (Shape{8, 8}));
}

// One value, or one for each layer, all the same.
TEST(Gguf, LimitsOfDeepSeek4AreThoseOfAllLayers) {
  TempDir dir;
  const auto config = [&](const std::vector<float>& routed, const std::vector<float>& shared) {
    GgufBuilder b;
    b.string("general.architecture", "deepseek4")
        .number("deepseek4.block_count", uint32_t{2})
        .tensor("token_embd.weight", {8, 10}, kHalf, std::string(160, 'e'));
    if (routed.size() == 1) b.number("deepseek4.swiglu_clamp_exp", routed[0]);
    if (routed.size() > 1) b.numbers("deepseek4.swiglu_clamp_exp", routed);
    if (!shared.empty()) b.numbers("deepseek4.swiglu_clamp_shexp", shared);
    return open_file(dir, b)->config();
  };
  EXPECT_EQ(config({2}, {})["swiglu_limit"], 2);
  EXPECT_EQ(config({2, 2}, {2, 2})["swiglu_limit"], 2);
  for (const std::vector<float>& shared : {std::vector<float>{}, {2, 2}})
    EXPECT_THROW(config({2, 4}, shared), Error);
  EXPECT_THROW(config({2, 2}, {4, 4}), Error);
}

}  // namespace
}  // namespace sluice
