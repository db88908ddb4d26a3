// Files that name less, or name it otherwise, than llama.cpp's converter does today.
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
using testing::ElementsAre;

constexpr uint32_t kFloat = 0;

std::unique_ptr<ModelSource> open_variant(const TempDir& dir, const GgufBuilder& builder) {
  test::write_file(dir / "model.gguf", builder.build());
  return open_model(dir / "model.gguf");
}
DecoderSpec variant_spec(const TempDir& dir, const GgufBuilder& builder) {
  return read_model(*open_variant(dir, builder)).spec;
}

// Sizes of two layers, and a table of 10 rows of 8.
GgufBuilder variant_sizes(const std::string& architecture, uint32_t layers = 2) {
  GgufBuilder b;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  b.string("general.architecture", architecture)
      .number(key("context_length"), uint32_t{64})
      .number(key("embedding_length"), uint32_t{8})
      .number(key("block_count"), layers)
      .number(key("feed_forward_length"), uint32_t{16})
      .number(key("attention.head_count"), uint32_t{2})
      .number(key("attention.head_count_kv"), uint32_t{1})
      .number(key("attention.layer_norm_rms_epsilon"), 1e-5f)
      .tensor("token_embd.weight", {8, 10}, kFloat, std::string(320, 'e'));
  return b;
}
GgufBuilder with_vector(GgufBuilder b, std::string_view name, uint64_t size = 8) {
  return b.tensor(name, {size}, kFloat, std::string(size * sizeof(float), 'v'));
}
const AttentionSpec& attention_in(const DecoderSpec& spec, size_t layer) {
  return spec.layer(layer).mixers.front().attention();
}

TEST(GgufVariants, AWindowOf0IsNone) {
  TempDir dir;
  const auto without = [&](const std::string& architecture, GgufBuilder b) {
    b.number(architecture + ".attention.sliding_window", uint32_t{0});
    const DecoderSpec spec = variant_spec(dir, b);
    for (size_t l = 0; l < spec.layers.size(); ++l)
      EXPECT_EQ(attention_in(spec, l).window, 0) << architecture;
  };
  for (const char* name : {"phi3", "gemma3", "starcoder2", "olmo2"})
    without(name, variant_sizes(name));
  without("gemma3", variant_sizes("gemma3").numbers<bool>("gemma3.attention.sliding_window_pattern",
                                                          {true, false}));
}

TEST(GgufVariants, LinearLayersHaveTheBiasesOfTheFile) {
  TempDir dir;
  for (const char* name : {"llama", "granite", "qwen3", "olmo2", "smollm3"}) {
    const AttentionSpec with =
        attention_in(variant_spec(dir, with_vector(variant_sizes(name), "blk.0.attn_q.bias")), 0);
    EXPECT_TRUE(with.qkv.bias && with.output.bias) << name;
    EXPECT_FALSE(attention_in(variant_spec(dir, variant_sizes(name)), 0).qkv.bias) << name;
  }
  const DecoderSpec mlp =
      variant_spec(dir, with_vector(variant_sizes("llama"), "blk.0.ffn_up.bias", 16));
  EXPECT_TRUE(mlp.layer(0).mlps.front().mlp.up.bias && mlp.layer(0).mlps.front().mlp.down.bias);
  EXPECT_FALSE(attention_in(variant_spec(dir, variant_sizes("starcoder2")), 0).output.bias);
  EXPECT_TRUE(
      attention_in(
          variant_spec(dir, with_vector(variant_sizes("starcoder2"), "blk.0.attn_output.bias")), 0)
          .output.bias);
}

TEST(GgufVariants, StableLmMayHaveOneNormALayerAndNormsOfHeads) {
  TempDir dir;
  const GgufBuilder one = with_vector(variant_sizes("stablelm"), "blk.0.attn_norm.weight");
  EXPECT_EQ(variant_spec(dir, one).layer(0).mlps.front().input, BranchInput::layer_input);
  EXPECT_NE(
      variant_spec(dir, with_vector(one, "blk.0.ffn_norm.weight")).layer(0).mlps.front().input,
      BranchInput::layer_input);
  GgufBuilder heads = one;
  heads.tensor("blk.0.attn_q_norm.weight", {4, 2}, kFloat, std::string(32, 'q'));
  const auto source = open_variant(dir, heads);
  EXPECT_EQ(attention_in(read_model(*source).spec, 0).head_norms, HeadNorms::each_tensor);
  const io::CheckpointIndex index = source->index();
  const io::StoredTensor* first = index.find("model.layers.0.self_attn.q_layernorm.norms.0.weight");
  const io::StoredTensor* second =
      index.find("model.layers.0.self_attn.q_layernorm.norms.1.weight");
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(second->shape, Shape{4});
  EXPECT_EQ(second->offset, first->offset + first->bytes);
}

TEST(GgufVariants, RecurrentLayersMayBeListed) {
  TempDir dir;
  GgufBuilder b = variant_sizes("qwen35", 4);
  b.number("qwen35.full_attention_interval", uint32_t{4})
      .number("qwen35.nextn_predict_layers", uint32_t{1})
      .numbers<bool>("qwen35.attention.recurrent_layers", {false, true, true, false});
  EXPECT_EQ(open_variant(dir, b)->config()["layer_types"],
            Json({"full_attention", "linear_attention", "linear_attention"}));
}

TEST(GgufVariants, AHeadIsAShareOfTheWidthWhereNoKeySaysItsSize) {
  TempDir dir;
  EXPECT_EQ(attention_in(variant_spec(dir, variant_sizes("glm4")), 0).head_dim, 4);
  const GgufBuilder own =
      variant_sizes("chatglm").number("chatglm.attention.key_length", uint32_t{6});
  EXPECT_EQ(attention_in(variant_spec(dir, own), 0).head_dim, 6);
}

// MobileLLM: Llama 4's layers, all of which rotate and attend to all, and no experts.
TEST(GgufVariants, Llama4MayHaveNoExperts) {
  TempDir dir;
  GgufBuilder b = variant_sizes("llama4");
  b.number("llama4.expert_count", uint32_t{0})
      .number("llama4.interleave_moe_layer_step", uint32_t{0})
      .number("llama4.expert_feed_forward_length", uint32_t{16})
      .number("llama4.attention.sliding_window", uint32_t{0});
  const DecoderSpec spec = variant_spec(dir, b);
  for (size_t l = 0; l < 2; ++l) {
    EXPECT_TRUE(attention_in(spec, l).rope.has_value());
    EXPECT_EQ(attention_in(spec, l).chunk, 0);
    EXPECT_FALSE(spec.layer(l).mlps.front().experts);
  }
}

// Ollama's converter has other keys of rope, and the model for images in the same file.
TEST(GgufVariants, OllamasFilesOfGemma3) {
  TempDir dir;
  GgufBuilder b = variant_sizes("gemma3", 34);
  b.number("gemma3.attention.sliding_window", uint32_t{8})
      .number("gemma3.rope.local.freq_base", 5000.0f)
      .tensor("v.blk.0.attn_q.weight", {8, 8}, kFloat, std::string(256, 'i'))
      .tensor("mm.mm_input_projection.weight", {8, 8}, kFloat, std::string(256, 'i'));
  const auto source = open_variant(dir, b);
  const Json config = source->config();
  EXPECT_EQ(config["rope_theta"], 1000000);
  EXPECT_EQ(config["rope_local_base_freq"], 5000);
  EXPECT_EQ(config["rope_scaling"], Json({{"rope_type", "linear"}, {"factor", 8.0}}));
  EXPECT_EQ(source->index().tensors().size(), 1u);
  GgufBuilder small = variant_sizes("gemma3", 26);
  small.number("gemma3.rope.global.freq_base", 20000.0f)
      .number("gemma3.final_logit_softcapping", 30.0f);
  const Json of_small = open_variant(dir, small)->config();
  EXPECT_EQ(of_small["rope_theta"], 20000);
  EXPECT_EQ(of_small["final_logit_softcapping"], Json());
  EXPECT_EQ(open_variant(dir, variant_sizes("qwen25vl"))->config()["model_type"], "qwen2");
  EXPECT_THROW(open_variant(dir, variant_sizes("gptoss"))->config(), Error);
}

GgufBuilder variant_pieces(const std::string& architecture, const char* model) {
  GgufBuilder b = variant_sizes(architecture);
  b.string("tokenizer.ggml.model", model)
      .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "\n", "a", "\u2581", "<|end|>"})
      .numbers<float>("tokenizer.ggml.scores", {0, 0, 0, -1, -2, -3, 0})
      .numbers<int32_t>("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 4})
      .number("tokenizer.ggml.add_space_prefix", false);
  return b;
}

TEST(GgufVariants, TokensOfPhi3TakeTheWhiteSpaceBehindThem) {
  TempDir dir;
  const auto ids = [&](const std::string& architecture) {
    return open_variant(dir, variant_pieces(architecture, "llama"))
        ->tokenizer()
        ->encode("<|end|>\na", false);
  };
  EXPECT_THAT(ids("phi3"), ElementsAre(6, 4));
  EXPECT_THAT(ids("llama"), ElementsAre(6, 3, 4));
}

TEST(GgufVariants, SentencePieceHasItsOwnIdsOfEnds) {
  TempDir dir;
  EXPECT_THAT(open_variant(dir, variant_pieces("llama", "llama"))->tokenizer()->encode("a", true),
              ElementsAre(1, 4));
  const GgufBuilder none =
      variant_pieces("llama", "llama").number("tokenizer.ggml.bos_token_id", uint32_t{4294967295});
  EXPECT_THAT(open_variant(dir, none)->tokenizer()->encode("a", true), ElementsAre(4));
}

TEST(GgufVariants, SeveralTokensMayHaveNoText) {
  TempDir dir;
  GgufBuilder b = variant_sizes("llama");
  b.string("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", {"<unk>", "", "", "a"})
      .numbers<float>("tokenizer.ggml.scores", {0, 0, 0, -1})
      .numbers<int32_t>("tokenizer.ggml.token_type", {2, 1, 1, 1})
      .number("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(open_variant(dir, b)->tokenizer()->encode("a", false), ElementsAre(3));
}

// The first files of Gemma 4 say that there is none.
TEST(GgufVariants, ATextOfGemma4BeginsWithBos) {
  TempDir dir;
  GgufBuilder b = variant_pieces("gemma4", "gemma4");
  b.strings("tokenizer.ggml.merges", {})
      .number("tokenizer.ggml.bos_token_id", uint32_t{1})
      .number("tokenizer.ggml.add_bos_token", false);
  EXPECT_THAT(open_variant(dir, b)->tokenizer()->encode("a", true), ElementsAre(1, 4));
}

}  // namespace
}  // namespace sluice
