// Config, names of tensors and tokenizer, from GGUF files.
#include "src/models/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "src/base/error.h"
#include "src/models/registry.h"
#include "tests/support/gguf.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::GgufBuilder;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0, kF16 = 1;

std::unique_ptr<ModelSource> open(const TempDir& dir, const GgufBuilder& builder) {
  test::write_file(dir / "model.gguf", builder.build());
  return open_model(dir / "model.gguf");
}

template <class Call>
std::string gguf_refusal(Call call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
    return e.what();
  }
  return "accepted";
}

// A model of one layer, of which only some tensors are there.
GgufBuilder tiny(const std::string& architecture, const std::vector<int32_t>& kv_heads = {},
                 const std::vector<int32_t>& mlp_widths = {}) {
  GgufBuilder b;
  const size_t layers = std::max({kv_heads.size(), mlp_widths.size(), size_t{1}});
  const auto key = [&](const char* name) { return architecture + "." + name; };
  b.number(key("context_length"), uint32_t{64})
      .number(key("embedding_length"), uint32_t{8})
      .number(key("block_count"), static_cast<uint32_t>(layers))
      .number(key("attention.head_count"), uint32_t{2})
      .number(key("attention.layer_norm_rms_epsilon"), 1e-5f)
      .number(key("rope.freq_base"), 500000.0f)
      .number("tokenizer.ggml.eos_token_id", uint32_t{2})
      .number("tokenizer.ggml.eot_token_id", uint32_t{5})
      .string("general.architecture", architecture)
      .tensor("token_embd.weight", {8, 10}, kF16, std::string(160, 'e'))
      .tensor("blk.0.attn_q.weight", {8, 8}, kF16, std::string(128, 'q'))
      .tensor("blk.0.attn_q.bias", {8}, kF32, std::string(32, 'b'))
      .tensor("blk.0.unheard_of.weight", {8}, kF32, std::string(32, 'u'));
  const auto sizes = [&](const char* name, uint32_t one, const std::vector<int32_t>& each) {
    each.empty() ? b.number(key(name), one) : b.numbers<int32_t>(key(name), each);
  };
  sizes("feed_forward_length", 16, mlp_widths);
  sizes("attention.head_count_kv", 1, kv_heads);
  return b;
}

TEST(Gguf, ConfigIsWhatTheHubWouldHave) {
  TempDir dir;
  const auto source = open(dir, tiny("qwen2"));
  const Json config = source->config();
  EXPECT_EQ(config["architectures"], Json({"Qwen2ForCausalLM"}));
  EXPECT_EQ(config["model_type"], "qwen2");
  EXPECT_EQ(config["hidden_size"], 8);
  EXPECT_EQ(config["num_hidden_layers"], 1);
  EXPECT_EQ(config["intermediate_size"], 16);
  EXPECT_EQ(config["num_attention_heads"], 2);
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["max_position_embeddings"], 64);
  EXPECT_EQ(config["rms_norm_eps"], 1e-5f);
  EXPECT_EQ(config["rope_theta"], 500000);
  EXPECT_EQ(config["vocab_size"], 10);  // the table's rows
  EXPECT_EQ(config["torch_dtype"], "float16");
  EXPECT_EQ(config["tie_word_embeddings"], true);  // there is no output.weight
  EXPECT_EQ(config["eos_token_id"], Json({2, 5}));
  std::vector<std::string> names;
  const io::CheckpointIndex index = source->index();
  for (const io::StoredTensor& t : index.tensors()) names.push_back(t.name);
  EXPECT_THAT(names,
              ElementsAre("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                          "model.layers.0.self_attn.q_proj.bias", "blk.0.unheard_of.weight"));
}

TEST(Gguf, RopeIsThatOfTheMetadata) {
  TempDir dir;
  const std::string two = test::bytes_of(1.5f) + test::bytes_of(2.0f);
  GgufBuilder scaled = tiny("phi3");
  scaled.string("phi3.rope.scaling.type", "yarn").number("phi3.rope.scaling.factor", 4.0f);
  scaled.number("phi3.rope.scaling.original_context_length", uint32_t{16});
  EXPECT_EQ(
      open(dir, scaled)->config()["rope_scaling"],
      Json({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}}));
  GgufBuilder longer = tiny("phi3");
  longer.tensor("rope_factors_long.weight", {2}, kF32, two);
  longer.tensor("rope_factors_short.weight", {2}, kF32, two);
  EXPECT_EQ(
      open(dir, longer)->config()["rope_scaling"],
      Json({{"rope_type", "longrope"}, {"long_factor", {1.5, 2}}, {"short_factor", {1.5, 2}}}));
  EXPECT_FALSE(open(dir, tiny("phi3"))->config().contains("rope_scaling"));
  EXPECT_EQ(open(dir, tiny("phi3").number("phi3.rope.dimension_count", uint32_t{2}))
                ->config()["partial_rotary_factor"],
            0.5);
  EXPECT_EQ(open(dir, tiny("gptneox").number("gptneox.rope.dimension_count", uint32_t{1}))
                ->config()["rotary_pct"],
            0.25);
  EXPECT_FALSE(open(dir, tiny("phi3").number("phi3.rope.dimension_count", uint32_t{4}))
                   ->config()
                   .contains("partial_rotary_factor"));
  EXPECT_EQ(
      open(dir, tiny("llama").tensor("rope_freqs.weight", {2}, kF32, two))->facts().rope_factors,
      std::vector<double>({1.5, 2}));
  EXPECT_THAT(gguf_refusal([&] {
                open(dir, tiny("llama").tensor("rope_freqs.weight", {2}, kF16, "1234"))->facts();
              }),
              HasSubstr("rope_freqs.weight: is F16, but must be F32"));
  EXPECT_THAT(
      gguf_refusal([&] {
        open(dir, tiny("llama").tensor("rope_freqs.weight", {16385}, kF32, std::string(65540, 'x')))
            ->facts();
      }),
      HasSubstr("rope_freqs.weight: has 64"));
}

TEST(Gguf, LayersWithoutKvHeadsAreOfTheArchitecturesOtherType) {
  TempDir dir;
  const Json config = open(dir, tiny("lfm2", {0, 2, 0}))->config();
  EXPECT_EQ(config["layer_types"], Json({"conv", "full_attention", "conv"}));
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_THAT(gguf_refusal([&] { open(dir, tiny("lfm2", {0, 2, 1}))->config(); }),
              HasSubstr("lfm2.attention.head_count_kv has 1 and 2"));
}

// A block behind the model's own layers predicts further tokens.
TEST(Gguf, FurtherLayersAreLeftOut) {
  TempDir dir;
  GgufBuilder b = tiny("lfm2", {2, 0, 2});
  b.number("lfm2.nextn_predict_layers", uint32_t{1})
      .tensor("blk.2.nextn.eh_proj.weight", {8, 8}, kF16, std::string(128, 'n'))
      .tensor("blk.2.attn_q.weight", {8, 8}, kF16, std::string(128, 'n'));
  const auto source = open(dir, b);
  EXPECT_EQ(source->config()["num_hidden_layers"], 2);
  EXPECT_EQ(source->config()["layer_types"], Json({"full_attention", "conv"}));
  const io::CheckpointIndex index = source->index();
  for (const io::StoredTensor& tensor : index.tensors())
    EXPECT_THAT(tensor.name, testing::Not(testing::AnyOf(HasSubstr(".2."), HasSubstr("nextn"))));
}

// An image encoder or an adapter beside a model.
TEST(Gguf, FilesThatAreNoModelSayWhatTheyAre) {
  TempDir dir;
  const auto refusal = [&](const char* type) {
    return gguf_refusal([&] { open(dir, tiny("llama").string("general.type", type))->config(); });
  };
  EXPECT_EQ(refusal("model"), "accepted");
  EXPECT_THAT(refusal("mmproj"), AllOf(HasSubstr("general.type is mmproj"),
                                       HasSubstr("give the file of the language model")));
  for (const auto& [name, what] : {std::pair{"bert", "an encoder"},
                                   {"t5", "an encoder and a decoder"},
                                   {"rwkv7", "RWKV"},
                                   {"dream", "a diffusion model"},
                                   {"clip", "for images"},
                                   {"wavtokenizer-dec", "for sounds"},
                                   {"eagle3", "drafts tokens"}}) {
    const std::string is = std::string("general.architecture is ") + name;
    EXPECT_THAT(gguf_refusal([&] { open(dir, tiny(name))->config(); }),
                AllOf(HasSubstr(is), HasSubstr(what), HasSubstr("not supported")));
  }
}

// llama.cpp knows the models of 13B so, too.
TEST(Gguf, BaichuanOfFortyLayersHasAlibi) {
  TempDir dir;
  const auto attention = [&](size_t layers) {
    const auto source = open(dir, tiny("baichuan", std::vector<int32_t>(layers, 2)));
    return read_model(*source).spec.layer(0).mixers.front().attention();
  };
  EXPECT_EQ(attention(40).alibi, 1);
  EXPECT_EQ(attention(32).alibi, 0);
  EXPECT_EQ(attention(32).rope, RopePairing::neighbours);
}

TEST(Gguf, SizesOfHeadsAreQuotientsOfKeys) {
  TempDir dir;
  GgufBuilder b = tiny("qwen35");
  b.number("qwen35.ssm.inner_size", uint32_t{60}).number("qwen35.ssm.time_step_rank", uint32_t{6});
  const Json config = open(dir, b)->config();
  EXPECT_EQ(config["linear_value_head_dim"], 10);
  EXPECT_EQ(config["linear_num_value_heads"], 6);
  GgufBuilder odd = tiny("qwen35");
  odd.number("qwen35.ssm.inner_size", uint32_t{60})
      .number("qwen35.ssm.time_step_rank", uint32_t{7});
  EXPECT_THAT(gguf_refusal([&] { open(dir, odd)->config(); }),
              HasSubstr("qwen35.ssm.time_step_rank (7) does not divide"));
}

// Keys before rope.scaling.* and types, as llama.cpp takes them.
TEST(Gguf, OlderKeysOfRopeCountWhereNewerAreAbsent) {
  TempDir dir;
  const auto scaling = [&](auto&& change) {
    GgufBuilder b = tiny("llama");
    change(b);
    return open(dir, b)->config().value("rope_scaling", Json());
  };
  const char *older = "llama.rope.scale_linear", *factor = "llama.rope.scaling.factor",
             *type = "llama.rope.scaling.type";
  const Json four{{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(scaling([&](auto& b) { b.number(older, 4.0f); }), four);
  EXPECT_EQ(scaling([&](auto& b) { b.number(factor, 4.0f); }), four);
  EXPECT_EQ(scaling([&](auto& b) { b.number(older, 4.0f).string(type, "linear"); }), four);
  EXPECT_EQ(scaling([&](auto& b) { b.number(older, 2.0f).number(factor, 4.0f); }), four);
  EXPECT_EQ(scaling([&](auto& b) { b.number(older, 4.0f).string(type, "none"); }), Json());
  EXPECT_EQ(scaling([&](auto& b) { b.number(older, 0.0f); }), Json());
  EXPECT_EQ(scaling([&](auto& b) { b.string(type, "linear"); }), Json());
  EXPECT_EQ(scaling([&](auto& b) { b.number(older, 4.0f).string(type, "yarn"); }),
            Json({{"rope_type", "yarn"}, {"factor", 4.0}}));
  const RopeConfig rope = read_model(*open(dir, tiny("llama").number(older, 4.0f))).spec.ropes[0];
  EXPECT_EQ(rope.kind, RopeKind::linear);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_THAT(gguf_refusal([&] { read_model(*open(dir, tiny("llama").number(older, -1.0f))); }),
              HasSubstr("factor is -1"));
}

TEST(Gguf, AbsentKeysHaveTheFormatsDefaults) {
  TempDir dir;
  GgufBuilder b;
  b.string("general.architecture", "gemma3").number("gemma3.rope.freq_base_swa", 5000.0f);
  const Json config = open(dir, b.tensor("t", {1}, kF32, "1234"))->config();
  EXPECT_EQ(config["rope_theta"], 10000);  // the class has another one
  EXPECT_EQ(config["rope_local_base_freq"], 5000);
  EXPECT_THAT(gguf_refusal([&] {
                open(dir, tiny("llama").number("llama.attention.causal", false))->config();
              }),
              HasSubstr("llama.attention.causal is false"));
}

// Many conversions name the end of a document only, and turns end with another token.
TEST(Gguf, EndsOfTurnsAreKnownByTheirTexts) {
  TempDir dir;
  using Types = std::vector<int32_t>;
  const auto ends = [&](const std::vector<std::string>& tokens, const Types& types,
                        uint32_t eos = 0) {
    GgufBuilder b;
    b.string("general.architecture", "llama").tensor("t", {1}, kF32, "1234");
    b.strings("tokenizer.ggml.tokens", tokens).number("tokenizer.ggml.eos_token_id", eos);
    if (!types.empty()) b.numbers("tokenizer.ggml.token_type", types);
    return open(dir, b)->config()["eos_token_id"];
  };
  for (const char* end :
       {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
        "<EOT>", "_<EOT>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "<|end_of_text|>", "[EOS]",
        "<|return|>", "<|call|>", "</s>", "<eos>", "<end_of_utterance>", "<turn|>"}) {
    EXPECT_EQ(ends({"a", "b", end}, {1, 1, 3}), Json({0, 2})) << end;
    EXPECT_EQ(ends({"a", end, "b"}, {1, 4, 1}), Json({0, 1})) << end;  // user-defined
    EXPECT_EQ(ends({"a", "b", end}, {1, 1, 1}), Json({0})) << end;     // a piece of texts
    EXPECT_EQ(ends({"a", "b", end}, {}), Json({0, 2})) << end;
    EXPECT_EQ(ends({"a", "b", end}, {1, 1, 3}, 2), Json({2})) << end;
  }
  EXPECT_EQ(ends({"a", "<|im_start|>", "<|fim_pad|>"}, {1, 3, 3}), Json({0}));
  EXPECT_EQ(ends({"<s>", "<|im_end|>", "<|endoftext|>"}, {3, 3, 3}), Json({0, 1, 2}));
  // A part of an answer ends with <|end|>.
  const std::vector<std::string> harmony{"<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"};
  EXPECT_EQ(ends(harmony, {3, 3, 3, 3}, 1), Json({1, 2, 3}));
  EXPECT_EQ(ends({"<|end|>", "<|flush|>", "<|calls|>"}, {3, 3, 3}, 1), Json({1, 2}));
  EXPECT_EQ(ends({"</s>", "<|tool_response>", "<turn|>"}, {3, 3, 3}, 2), Json({2, 1}));
}

TEST(Gguf, KeysNameSeveralEnds) {
  TempDir dir;
  GgufBuilder b = tiny("llama");
  b.number("tokenizer.ggml.eom_token_id", uint32_t{7});
  b.numbers<int32_t>("tokenizer.ggml.eos_token_ids", {2, 9, -1});
  EXPECT_EQ(open(dir, b)->config()["eos_token_id"], Json({2, 5, 7, 9}));
  GgufBuilder odd = tiny("llama");  // a tokenizer that cannot be used says nothing
  odd.numbers<int32_t>("tokenizer.ggml.tokens", {1, 2});
  EXPECT_EQ(open(dir, odd)->config()["eos_token_id"], Json({2, 5}));
}

TEST(Gguf, PoolingIsThatOfTheMetadata) {
  TempDir dir;
  const auto rules = [&](int32_t type) {
    return open(dir, tiny("qwen3").number("qwen3.pooling_type", type))->embedding_rules();
  };
  EXPECT_EQ(open(dir, tiny("qwen3"))->embedding_rules().pooling, Pooling::last);
  EXPECT_EQ(rules(0).pooling, Pooling::last);
  EXPECT_EQ(rules(1).pooling, Pooling::mean);
  EXPECT_EQ(rules(2).pooling, Pooling::first);
  EXPECT_EQ(rules(3).pooling, Pooling::last);
  EXPECT_TRUE(rules(1).refusal.empty() && rules(1).normalized);
  EXPECT_THAT(rules(4).refusal, HasSubstr("qwen3.pooling_type is 4"));
}

TEST(Gguf, OtherNamesOfOtherArchitectures) {
  const auto name = [](const char* architecture, const char* tensor) {
    TempDir dir;
    GgufBuilder b;
    b.string("general.architecture", architecture).tensor(tensor, {1}, kF32, "1234");
    return open(dir, b)->index().tensors().front().name;
  };
  EXPECT_EQ(name("qwen35", "blk.1.ssm_a"), "model.layers.1.linear_attn.A_log");
  EXPECT_EQ(name("qwen35", "blk.1.ssm_dt.bias"), "model.layers.1.linear_attn.dt_bias");
  EXPECT_EQ(name("gpt2", "blk.12.attn_qkv.bias"), "transformer.h.12.attn.c_attn.bias");
  EXPECT_EQ(name("gptneox", "blk.3.ffn_norm.weight"),
            "gpt_neox.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(name("phi3", "blk.3.ffn_up.weight"), "model.layers.3.mlp.gate_up_proj.weight");
  EXPECT_EQ(name("phi3", "blk.3.ffn_down.weight"), "model.layers.3.mlp.down_proj.weight");
  EXPECT_EQ(name("gemma3", "blk.0.ffn_norm.weight"),
            "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(name("llama", "blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  for (const char* odd : {"blk.", "blk.0", "blk.x.", "blk.0.attn_q", "weight",
                          "blk.0.output.weight", "attn_q.weight"})
    EXPECT_EQ(name("llama", odd), odd);
}

TEST(Gguf, FactsOfTheFileAreValuesOfTheDecoder) {
  TempDir dir;
  const std::string factors = test::bytes_of(2.0f) + test::bytes_of(4.0f);
  const Model model =
      read_model(*open(dir, tiny("llama").tensor("rope_freqs.weight", {2}, kF32, factors)));
  EXPECT_EQ(model.spec.layer(0).mixers.front().attention().rope, RopePairing::neighbours);
  ASSERT_EQ(model.spec.ropes.size(), 1u);
  RopeConfig plain = model.spec.ropes.front();
  plain.factors.clear();
  const std::vector<float> scaled = rope_frequencies(model.spec.ropes.front(), 1);
  const std::vector<float> unscaled = rope_frequencies(plain, 1);
  EXPECT_THAT(scaled, ElementsAre(unscaled[0] / 2, unscaled[1] / 4));
  for (const std::string& bad :
       {test::bytes_of(2.0f), test::bytes_of(2.0f) + test::bytes_of(0.0f)}) {
    const GgufBuilder b = tiny("llama").tensor("rope_freqs.weight", {bad.size() / 4}, kF32, bad);
    EXPECT_THAT(gguf_refusal([&] { read_model(*open(dir, b)); }),
                HasSubstr("must be 2 positive numbers"));
  }
}

// A fused qkv lies as llama.cpp has it: q, then k, then v, in rows that are outputs.
TEST(Gguf, FusedHeadsLieOneKindBehindTheOther) {
  TempDir dir;
  for (const char* architecture : {"gpt2", "gptneox", "bloom"}) {
    const DecoderSpec spec = read_model(*open(dir, tiny(architecture))).spec;
    const std::vector<PartSpec>& parts = spec.layer(0).mixers.front().attention().qkv.parts;
    ASSERT_EQ(parts.size(), 3u);
    for (int64_t i = 0; i < 3; ++i) {
      const View& view = parts[static_cast<size_t>(i)].view;
      EXPECT_EQ(view.first, 8 * i) << architecture;
      EXPECT_TRUE(!view.transposed && view.group == 0) << architecture;
    }
    EXPECT_FALSE(spec.layer(0).mlps.front().mlp.down.parts.front().view.transposed);
  }
}

TEST(Gguf, ModelsWithExpertsAreThoseOfTheHub) {
  TempDir dir;
  const auto source =
      open(dir, tiny("llama")
                    .number("llama.expert_count", uint32_t{4})
                    .number("llama.expert_used_count", uint32_t{2})
                    .tensor("blk.0.ffn_up_exps.weight", {8, 6, 4}, kF16, std::string(384, 'u'))
                    .tensor("blk.0.ffn_up.3.weight", {8, 6}, kF16, std::string(96, 'u')));
  const Json config = source->config();
  EXPECT_EQ(config["architectures"], Json({"MixtralForCausalLM"}));
  EXPECT_EQ(config["num_experts"], 4);
  EXPECT_EQ(config["num_experts_per_tok"], 2);
  const io::CheckpointIndex index = source->index();
  EXPECT_NE(index.find("model.layers.0.block_sparse_moe.experts.w3.weight"), nullptr);
  EXPECT_NE(index.find("model.layers.0.block_sparse_moe.experts.3.w3.weight"), nullptr);

  const auto shared =
      open(dir, tiny("qwen2moe")
                    .tensor("blk.0.ffn_up_exps.weight", {8, 6, 4}, kF16, std::string(384, 'u'))
                    .tensor("blk.0.ffn_gate_inp_shexp.weight", {8}, kF32, std::string(32, 'g')));
  EXPECT_EQ(shared->config()["moe_intermediate_size"], 6);  // no key says it
  const io::CheckpointIndex of_shared = shared->index();
  const io::StoredTensor* gate = of_shared.find("model.layers.0.mlp.shared_expert_gate.weight");
  ASSERT_NE(gate, nullptr);
  EXPECT_EQ(gate->shape, (Shape{1, 8}));

  EXPECT_EQ(open(dir, tiny("qwen3moe"))->config()["norm_topk_prob"], true);
  const GgufBuilder clamped = tiny("olmoe").number("olmoe.attention.clamp_kqv", 7.5F);
  const DecoderSpec olmoe = read_model(*open(dir, clamped)).spec;
  EXPECT_EQ(olmoe.layer(0).mixers.front().attention().clip, 7.5F);
  GgufBuilder more = tiny("glm4moe", {1, 1, 1});
  more.number("glm4moe.nextn_predict_layers", uint32_t{1})
      .tensor("blk.0.exp_probs_b.bias", {4}, kF32, std::string(16, 'b'));
  const auto glm = open(dir, more);
  EXPECT_EQ(glm->config()["num_hidden_layers"], 2);
  EXPECT_EQ(glm->config()["attention_bias"], true);
  const io::CheckpointIndex of_glm = glm->index();
  EXPECT_NE(of_glm.find("model.layers.0.mlp.gate.e_score_correction_bias"), nullptr);
}

// One value, or one for each layer; where they differ, layers are of several kinds.
TEST(Gguf, SizesOfSingleLayers) {
  TempDir dir;
  const auto spec = [&](const GgufBuilder& b) { return read_model(*open(dir, b)).spec; };
  for (const GgufBuilder& b : {tiny("llama", {2, 2, 2}, {16, 16, 16}), tiny("llama", {2, 2, 2})}) {
    const DecoderSpec same = spec(b);
    EXPECT_EQ(same.kinds.size(), 1u);
    EXPECT_EQ(same.layers.size(), 3u);
    EXPECT_EQ(same.layer(0).mixers.front().attention().kv_heads.units(), 2);
    EXPECT_EQ(same.layer(0).mlps.front().mlp.width.size, 16);
  }
  const DecoderSpec mixed = spec(tiny("llama", {2, 1, 2}, {16, 16, 24}));
  EXPECT_EQ(mixed.kinds.size(), 3u);
  EXPECT_EQ(mixed.layer(1).mixers.front().attention().kv_heads.units(), 1);
  EXPECT_EQ(mixed.layer(2).mlps.front().mlp.width.size, 24);
  EXPECT_EQ(mixed.layer(0).mlps.front().mlp.width.size, 16);
  GgufBuilder sliding = tiny("gemma3", {1, 1, 1});
  sliding.number("gemma3.attention.sliding_window", uint32_t{8});
  sliding.numbers<bool>("gemma3.attention.sliding_window_pattern", {true, false, true});
  const DecoderSpec windows = spec(sliding);
  for (size_t l = 0; l < 3; ++l)
    EXPECT_EQ(windows.layer(l).mixers.front().attention().window, l == 1 ? 0 : 8);
}

TEST(Gguf, OddValuesAreNamed) {
  TempDir dir;
  const auto fault = [&](GgufBuilder b) {
    return gguf_refusal([&] { read_model(*open(dir, b)); });
  };
  EXPECT_THAT(fault(tiny("frobnicator")),
              AllOf(HasSubstr("frobnicator"), HasSubstr("not supported"), HasSubstr("qwen3")));
  GgufBuilder none;
  none.tensor("t", {1}, kF32, "1234");
  EXPECT_THAT(fault(none), HasSubstr("general.architecture is missing"));
  none.number("general.architecture", 5);
  EXPECT_THAT(fault(none), HasSubstr("general.architecture must be a string"));
  EXPECT_THAT(fault(tiny("qwen2").number("qwen2.expert_count", uint32_t{8})),
              HasSubstr("qwen2.expert_count is 8, which is not supported"));
  EXPECT_THAT(fault(tiny("qwen3moe").number("qwen3moe.expert_gating_func", uint32_t{2})),
              HasSubstr("qwen3moe.expert_gating_func is 2, which is not supported"));
  EXPECT_THAT(fault(tiny("qwen3moe").number("qwen3moe.expert_weights_scale", 2.5f)),
              HasSubstr("qwen3moe.expert_weights_scale is 2.5, which is not supported"));
  EXPECT_THAT(fault(tiny("glm4moe").number("glm4moe.nextn_predict_layers", uint32_t{1})),
              HasSubstr("glm4moe.nextn_predict_layers is 1"));
  GgufBuilder two = tiny("llama", {1, 1});
  EXPECT_THAT(fault(two.numbers<int32_t>("llama.attention.key_length", {4, 8})),
              HasSubstr("llama.attention.key_length differs from layer to layer"));
  EXPECT_THAT(fault(tiny("llama").numbers<int32_t>("llama.attention.key_length", {4, 4, 4})),
              HasSubstr("llama.attention.key_length has 3 values for 1 layers"));
  EXPECT_THAT(fault(tiny("llama").numbers<float>("llama.attention.key_length", {4.5})),
              HasSubstr("llama.attention.key_length must have whole numbers"));
  EXPECT_THAT(fault(tiny("llama", {1, 0})), HasSubstr("its layers differ"));
  EXPECT_THAT(fault(tiny("phi3", {1, 2})), HasSubstr("its layers differ"));  // fused
  EXPECT_THAT(fault(tiny("llama").string("llama.attention.key_length", "4")),
              AllOf(HasSubstr("model.gguf"), HasSubstr("head_dim must be")));
  test::write_file(dir / "other", "text");
  EXPECT_THAT(gguf_refusal([&] { open_model(dir / "other"); }), HasSubstr("nor a GGUF file"));
  EXPECT_THAT(gguf_refusal([&] { open_model(dir / "nowhere.gguf"); }), HasSubstr("does not exist"));
}

TEST(Gguf, SharedBrokenFilesAreRefused) {
  if (test::oracle_dir().empty()) GTEST_SKIP() << "no folder of shared fixtures (SLUICE_ORACLE)";
  int count = 0;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(test::oracle_dir() / "malformed")) {
    if (!entry.path().filename().string().starts_with("gguf_")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Json manifest = Json::parse(test::read_file(entry.path() / "manifest.json"));
    const std::string message = gguf_refusal([&] {
      const auto source = open_model(entry.path() / "model.gguf");
      source->index();
      read_model(*source);
    });
    for (const Json& word : manifest["message_should_mention"])
      EXPECT_THAT(message, HasSubstr(word.get<std::string>()));
    ++count;
  }
  EXPECT_GT(count, 25);
}

std::vector<Json> rows_of(const fs::path& path) {
  std::vector<Json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

void expect_golden(const Tokenizer& tokenizer, const fs::path& strings) {
  const std::vector<Json> rows = rows_of(strings);
  ASSERT_GE(rows.size(), 50u);
  for (const Json& row : rows) {
    const std::string text = row.at("text").get<std::string>();
    EXPECT_EQ(Json(tokenizer.encode(text, true)), row.at("ids")) << row;
    EXPECT_EQ(Json(tokenizer.encode(text, false)), row.at("ids_no_special")) << row;
    const auto ids = row.at("ids_no_special").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids, false), row.at("decoded").get<std::string>()) << row;
    EXPECT_EQ(tokenizer.decode(ids, true), row.at("decoded_skip_special").get<std::string>());
  }
}

// The metadata that llama.cpp's converter makes of a byte-level tokenizer.json.
GgufBuilder with_tokenizer(const fs::path& directory, const char* pre) {
  const Json json = Json::parse(test::read_file(directory / "tokenizer.json"));
  std::map<int64_t, std::string> tokens;
  std::map<int64_t, int32_t> types;
  for (const auto& [token, id] : json["model"]["vocab"].items()) tokens[id] = token;
  for (const Json& added : json["added_tokens"]) {
    tokens[added["id"]] = added["content"];
    types[added["id"]] = added["special"] == true ? 3 : 4;
  }
  std::vector<std::string> texts, merges;
  std::vector<int32_t> kinds;
  for (const auto& [id, token] : tokens) {
    texts.push_back(token);
    kinds.push_back(types.contains(id) ? types[id] : 1);
  }
  for (const Json& merge : json["model"]["merges"]) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  const Json config = Json::parse(test::read_file(directory / "tokenizer_config.json"));
  GgufBuilder b = tiny("llama");
  b.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
  b.strings("tokenizer.ggml.tokens", texts).numbers("tokenizer.ggml.token_type", kinds);
  b.strings("tokenizer.ggml.merges", merges);
  for (const auto& [id, token] : tokens) {
    if (config.value("bos_token", Json()) == token)
      b.number("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(id));
  }
  return b;
}

TEST(GgufTokenizer, ByteLevelEqualsTokenizerJson) {
  for (auto [family, pre] :
       {std::pair("llama3_bpe", "llama-bpe"), std::pair("qwen2_bpe", "qwen2")}) {
    SCOPED_TRACE(family);
    const fs::path directory = test::source_dir() / "tests/data/text" / family;
    TempDir dir;
    const std::optional<Tokenizer> tokenizer =
        open(dir, with_tokenizer(directory, pre))->tokenizer();
    ASSERT_TRUE(tokenizer);
    expect_golden(*tokenizer, directory / "strings.jsonl");
    EXPECT_EQ(tokenizer->bos_id(), Tokenizer::load(directory).bos_id());
  }
}

TEST(GgufTokenizer, EverySplitThatIsNamedKeepsTheText) {
  TempDir dir;
  const fs::path directory = test::source_dir() / "tests/data/text/llama3_bpe";
  const std::string text = "It's 12345 na\u00efve\n\n\t \u6f22\u5b57\u304b\u306a [x] +5%  \u0645";
  const std::string known =
      gguf_refusal([&] { open(dir, with_tokenizer(directory, "no such name"))->tokenizer(); });
  ASSERT_THAT(known, HasSubstr("known: "));
  std::istringstream names(known.substr(known.find("known: ") + 7));
  size_t count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ','); ++count) {
    SCOPED_TRACE(name);
    const auto tokenizer = open(dir, with_tokenizer(directory, name.c_str()))->tokenizer();
    ASSERT_TRUE(tokenizer);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false), false), text);
  }
  EXPECT_GT(count, 60u);
}

TEST(GgufTokenizer, PiecesAreThoseOfTheNamedSplit) {
  TempDir dir;
  const auto tokens = [&](const char* pre, const char* text) {
    GgufBuilder b = tiny("llama");
    b.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
    b.strings("tokenizer.ggml.tokens", {"1", "11", "1111", "a", "aa", "+", "+a", "a1"});
    b.strings("tokenizer.ggml.merges", {"1 1", "11 11", "a 1", "+ a", "a a"});
    return open(dir, b)->tokenizer()->encode(text, false);
  };
  EXPECT_THAT(tokens("gpt-2", "1111"), ElementsAre(2));
  EXPECT_THAT(tokens("deepseek-v3", "1111"), ElementsAre(1, 0, 0));
  EXPECT_THAT(tokens("deepseek-v3", "+a"), ElementsAre(6));
  EXPECT_THAT(tokens("deepseek-llm", "1111"), ElementsAre(2));
  EXPECT_THAT(tokens("deepseek-llm", "+a"), ElementsAre(5, 3));
  EXPECT_THAT(tokens("deepseek-coder", "11"), ElementsAre(0, 0));
  EXPECT_THAT(tokens("falcon", "1111"), ElementsAre(1, 0, 0));
  EXPECT_THAT(tokens("cohere2moe", "1111"), ElementsAre(0, 1, 0));
  EXPECT_THAT(tokens("qwen35", "aa11"), ElementsAre(4, 0, 0));
  EXPECT_THAT(tokens("afmoe", "1111"), ElementsAre(0, 1, 0));
  EXPECT_THAT(tokens("youtu", "11"), ElementsAre(0, 0));
  EXPECT_THAT(tokens("viking", "aa11"), ElementsAre(4, 0, 0));
  EXPECT_THAT(tokens("minicpm5", "1111"), ElementsAre(1, 0, 0));
}

// The shared fixtures: real vocabularies, SentencePiece's among them.
TEST(GgufTokenizer, SharedVocabulariesEqualTokenizerJson) {
  if (test::oracle_dir().empty()) GTEST_SKIP() << "no folder of shared fixtures (SLUICE_ORACLE)";
  for (const char* name : {"gguf_tok_llama_bpe", "gguf_tok_qwen2", "gguf_tok_spm"}) {
    SCOPED_TRACE(name);
    const fs::path folder = test::oracle_dir() / "formats" / name;
    const Json manifest = Json::parse(test::read_file(folder / "manifest.json"));
    const std::optional<Tokenizer> tokenizer = open_model(folder / "model.gguf")->tokenizer();
    ASSERT_TRUE(tokenizer);
    const fs::path fixture = test::oracle_dir() / manifest["tokenizer_fixture"].get<std::string>();
    expect_golden(*tokenizer, fixture / "strings.jsonl");
  }
}

// SentencePiece: "ab" has a higher score than "bc", and of equal ones the longer left part counts.
GgufBuilder sentence_piece() {
  GgufBuilder b = tiny("llama");
  b.string("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x41>", "a", "b", "c", "ab",
                                         "bc", "abc", "\u2581", "\u2581a", "<user>"})
      .numbers<float>("tokenizer.ggml.scores", {0, 0, 0, 0, -9, -9, -9, -2, -3, -4, -9, -8, 0})
      .numbers<int32_t>("tokenizer.ggml.token_type", {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1, 4})
      .number("tokenizer.ggml.bos_token_id", uint32_t{1});
  return b;
}

TEST(GgufTokenizer, ScoresDecideWhatIsJoined) {
  TempDir dir;
  const std::optional<Tokenizer> t = open(dir, sentence_piece())->tokenizer();
  ASSERT_TRUE(t);
  EXPECT_THAT(t->encode("abc", true), ElementsAre(1, 10, 9));
  EXPECT_THAT(t->encode("a", false), ElementsAre(11));
  EXPECT_THAT(t->encode("bcA", false), ElementsAre(10, 8, 3));
  EXPECT_THAT(t->encode("b<user>x", false), ElementsAre(10, 5, 12, 10, 0));
  EXPECT_EQ(t->decode(std::vector<int32_t>{11, 6, 10, 9}, true), "ac abc");
  EXPECT_TRUE(t->is_special(1));
  EXPECT_FALSE(t->is_special(12));
  const auto plain = open(dir, sentence_piece()
                                   .number("tokenizer.ggml.add_space_prefix", false)
                                   .number("tokenizer.ggml.add_bos_token", false))
                         ->tokenizer();
  EXPECT_THAT(plain->encode("a b", true), ElementsAre(4, 10, 5));
}

// Gemma 4's: SentencePiece's alphabet, and merges in the place of scores.
TEST(GgufTokenizer, MergesMayStandInThePlaceOfScores) {
  TempDir dir;
  GgufBuilder b = tiny("llama");
  b.string("tokenizer.ggml.model", "gemma4")
      .strings("tokenizer.ggml.tokens",
               {"<unk>", "<bos>", "a", "b", "ab", "\u2581", "\u2581ab", "<0x43>"})
      .numbers<int32_t>("tokenizer.ggml.token_type", {2, 3, 1, 1, 1, 1, 1, 6})
      .strings("tokenizer.ggml.merges", {"a b", "\u2581 ab"})
      .number("tokenizer.ggml.bos_token_id", uint32_t{1});
  const std::optional<Tokenizer> t = open(dir, b)->tokenizer();
  ASSERT_TRUE(t);
  EXPECT_THAT(t->encode("ab abC", true), ElementsAre(1, 4, 6, 7));
  EXPECT_EQ(t->decode(std::vector<int32_t>{1, 4, 6, 7}, true), "ab abC");
}

TEST(GgufTokenizer, OddValuesAreNamed) {
  TempDir dir;
  const auto fault = [&](const GgufBuilder& b) {
    return gguf_refusal([&] { open(dir, b)->tokenizer(); });
  };
  const auto byte_level = [](const char* pre, std::vector<std::string> merges) {
    GgufBuilder b = tiny("llama");
    b.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
    b.strings("tokenizer.ggml.tokens", {"a", "b", "ab"}).strings("tokenizer.ggml.merges", merges);
    return b;
  };
  EXPECT_THAT(fault(byte_level("qwen2", {"a b"})), HasSubstr("accepted"));
  EXPECT_THAT(fault(byte_level("qwen9", {})), AllOf(HasSubstr("qwen9"), HasSubstr("llama-bpe")));
  for (const char* merge : {"", "ab", "a ", " b"})
    EXPECT_THAT(fault(byte_level("qwen2", {merge})), HasSubstr("must be two tokens"));
  EXPECT_THAT(fault(byte_level("qwen2", {"b a"})),
              AllOf(HasSubstr("model.gguf"), HasSubstr("not in the vocabulary")));
  EXPECT_THAT(fault(byte_level("qwen2", {}).numbers<int32_t>("tokenizer.ggml.token_type", {1})),
              HasSubstr("token_type has 1 elements, but there are 3 tokens"));
  EXPECT_THAT(fault(tiny("llama")
                        .string("tokenizer.ggml.model", "gpt2")
                        .string("tokenizer.ggml.pre", "qwen2")
                        .strings("tokenizer.ggml.tokens", {"\x80", "\xF0", "\x80\xF0"})
                        .strings("tokenizer.ggml.merges", {"\x80 \xF0"})),
              AllOf(HasSubstr("model.gguf"), HasSubstr("token 0 (\"\\x80\") is not UTF-8")));
  EXPECT_THAT(fault(tiny("llama").strings("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("tokenizer.ggml.model is missing"));
  EXPECT_THAT(fault(tiny("llama")
                        .strings("tokenizer.ggml.tokens", {"a"})
                        .string("tokenizer.ggml.model", "t5")),
              HasSubstr("t5 is not supported"));
  EXPECT_THAT(fault(tiny("llama").numbers<int32_t>("tokenizer.ggml.tokens", {1})),
              HasSubstr("tokenizer.ggml.tokens must be an array of strings"));
  EXPECT_FALSE(open(dir, tiny("llama"))->tokenizer());
}

}  // namespace
}  // namespace sluice
