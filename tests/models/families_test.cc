// The family that a config.json belongs to, and what it takes for keys that are absent or null.
#include "tests/models/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "tests/support/checkpoint.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Returns the attention of a model whose layers differ in nothing but their windows.
const AttentionSpec& attention(const DecoderSpec& spec) {
  return spec.kinds.front().mixers.front().attention();
}
std::vector<int64_t> windows(const DecoderSpec& spec) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    for (const MixerBranch& mixer : spec.layer(i).mixers) all.push_back(mixer.attention().window);
  return all;
}

// Says if the angles of an attention's keys are not all zeros.
bool turns(const DecoderSpec& spec, const AttentionSpec& a) {
  if (!a.rope) return false;
  const RopeConfig& rope = spec.ropes[a.angles];
  return rope.kind != RopeKind::proportional || rope.turning > 0;
}

void expect_rope(const RopeConfig& rope, int64_t head_dim, const Json& expected) {
  const Json config{{"rope_parameters", expected}};
  const bool part = expected.value("rope_type", "") == "default";
  const RopeConfig read = parse_rope(JsonFields(config, "defaults"),
                                     {.head_dim = head_dim,
                                      .max_positions = rope.max_positions,
                                      .part_key = part ? "partial_rotary_factor" : nullptr});
  std::vector<float> frequencies = rope_frequencies(rope, 1);
  for (float& f : frequencies) f = std::abs(f);  // nanochat's heads turn backwards
  EXPECT_EQ(frequencies, rope_frequencies(read, 1));
  EXPECT_EQ(rope.kind, read.kind);
  EXPECT_EQ(rope.attention_factor, read.attention_factor);
}

// Families whose class comes with checkpoints; transformers has none.
constexpr std::array kOwnClasses{"BaichuanForCausalLM",      "BailingMoeForCausalLM",
                                 "BailingMoeV2ForCausalLM",  "ChatGLMModel",
                                 "DeciLMForCausalLM",        "DeepseekForCausalLM",
                                 "InternLM2ForCausalLM",     "InternLMForCausalLM",
                                 "MaincoderForCausalLM",     "MiniCPMForCausalLM",
                                 "OrionForCausalLM",         "PLMForCausalLM",
                                 "PanguEmbeddedForCausalLM", "QWenLMHeadModel"};

// tests/data/configs/make_defaults.py asked transformers.
TEST(Families, AbsentKeysHaveTheDefaultsOfTransformers) {
  Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  const size_t known = golden["classes"].size() + golden["hybrids"].size() +
                       golden["latents"].size() + golden["summaries"].size();
  ASSERT_EQ(known + kOwnClasses.size(), families().size());
  for (const auto& [architecture, expected] : golden["classes"].items()) {
    SCOPED_TRACE(architecture);
    DecoderSpec c = parse_family(architecture, expected.value("given", Json::object()));
    EXPECT_EQ(c.vocab_size, expected["vocab_size"]);
    EXPECT_EQ(c.hidden_size, expected["hidden_size"]);
    if (mlp(c).width.size > 0) {  // else all layers have experts
      EXPECT_EQ(mlp(c).width.size, expected["intermediate_size"]);
    }
    EXPECT_EQ(std::ssize(c.layers), expected["num_hidden_layers"]);
    EXPECT_EQ(attention(c).heads.units(), expected["num_attention_heads"]);
    const Json& kv_heads = expected["num_key_value_heads"];
    EXPECT_EQ(attention(c).kv_heads.units(),
              kv_heads.is_null() ? expected["num_attention_heads"] : kv_heads);
    EXPECT_EQ(attention(c).head_dim, expected["head_dim"]);
    EXPECT_EQ(c.max_positions, expected["max_position_embeddings"]);
    EXPECT_EQ(c.norm.params.eps, expected["eps"].get<float>());
    Json activation{{"activation", expected["hidden_act"]}};
    EXPECT_EQ(mlp(c).activation,
              read_activation(JsonFields(activation, "defaults"), "activation", ""));
    EXPECT_EQ(c.tie_word_embeddings, expected["tie_word_embeddings"]);
    if (expected.contains("attention_bias")) {
      EXPECT_EQ(attention(c).qkv.bias, expected["attention_bias"]);
      EXPECT_EQ(attention(c).output.bias,
                expected.value("attention_out_bias", expected["attention_bias"].get<bool>()));
    }
    if (expected.contains("mlp_bias")) {
      EXPECT_EQ(mlp(c).up.bias && mlp(c).down.bias, expected["mlp_bias"]);
    }
    EXPECT_EQ(c.kinds.front().mlps.front().input == BranchInput::layer_input,
              expected.value("use_parallel_residual", false));
    if (expected.contains("windows")) {
      EXPECT_EQ(windows(c), expected["windows"].get<std::vector<int64_t>>());
    } else {
      EXPECT_THAT(windows(c),
                  Each(expected.contains("sliding_window") && !expected["sliding_window"].is_null()
                           ? expected["sliding_window"].get<int64_t>()
                           : 0));
    }
    ASSERT_EQ(c.ropes.empty() || c.sinusoids, !expected.contains("rope_parameters"));
    if (c.ropes.empty() || c.sinusoids) continue;
    const Json& ropes = expected["rope_parameters"];
    for (const LayerSpec& layer : c.kinds) {
      if (layer.mixers.empty() || !turns(c, layer.mixers.front().attention())) continue;
      const AttentionSpec& a = layer.mixers.front().attention();
      const char* layers = a.window > 0 ? "sliding_attention" : "full_attention";
      expect_rope(c.ropes[a.angles], a.head_dim, ropes.contains(layers) ? ropes[layers] : ropes);
    }
  }
}

// A config.json with rope fields but no rope_theta has another theta than one that has none at
// all.
TEST(Families, RopeFieldsWithoutThetaHaveTheClasssOwn) {
  const Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  for (const auto& [architecture, expected] : golden["ropes_without_theta"].items()) {
    SCOPED_TRACE(architecture);
    const char* kind = golden["classes"].contains(architecture) ? "classes" : "hybrids";
    Json fields = golden[kind][architecture].value("given", Json::object());
    fields["rope_parameters"] = {{"rope_type", "default"}};
    const DecoderSpec c = parse_family(architecture, fields);
    for (const LayerSpec& layer : c.kinds) {
      for (const MixerBranch& mixer : layer.mixers) {
        if (!std::holds_alternative<AttentionSpec>(mixer.mixer)) continue;
        const AttentionSpec& a = mixer.attention();
        if (!turns(c, a)) continue;
        const char* layers = a.window > 0 ? "sliding_attention" : "full_attention";
        expect_rope(c.ropes[a.angles], a.head_dim,
                    expected.contains(layers) ? expected[layers] : expected);
      }
    }
  }
  Json yarn{{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 8}}}};
  EXPECT_EQ(parse_family("Ministral3ForCausalLM", yarn).ropes.front().theta, 10000);
  const Json none{{"rope_scaling", Json::object()}};  // is no rope field
  EXPECT_EQ(parse_family("Ministral3ForCausalLM", none).ropes.front().theta, 1000000);
  EXPECT_EQ(parse_family("Ministral3ForCausalLM", none).ropes.front().kind, RopeKind::yarn);
  EXPECT_EQ(parse_family("ApertusForCausalLM", none).ropes.front().kind, RopeKind::llama3);
}

TEST(Families, LanguageModelsOfWrappersHaveTheDefaultsOfTheirOwnClasses) {
  const Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  for (const auto& [model_type, expected] : golden["text_types"].items()) {
    SCOPED_TRACE(model_type);
    const Json config{{"model_type", model_type}};
    const JsonFields fields(config, "config.json");
    const DecoderSpec c = find_family(fields).parse(fields);
    EXPECT_EQ(c.vocab_size, expected["vocab_size"]);
    EXPECT_EQ(c.hidden_size, expected["hidden_size"]);
    EXPECT_EQ(std::ssize(c.layers), expected["num_hidden_layers"]);
    EXPECT_EQ(attention(c).heads.units(), expected["num_attention_heads"]);
    const Json& kv_heads = expected["num_key_value_heads"];
    EXPECT_EQ(attention(c).kv_heads.units(),
              kv_heads.is_null() ? expected["num_attention_heads"] : kv_heads);
    EXPECT_EQ(attention(c).head_dim, expected["head_dim"]);
    EXPECT_EQ(c.max_positions, expected["max_position_embeddings"]);
    EXPECT_EQ(c.norm.params.eps, expected["eps"].get<float>());
    expect_rope(c.ropes.front(), attention(c).head_dim, expected["rope_parameters"]);
    if (!expected.contains("experts")) {
      if (mlp(c).width.size > 0) {  // else all layers have experts
        EXPECT_EQ(mlp(c).width.size, expected["intermediate_size"]);
      }
      continue;
    }
    const auto& experts = c.kinds[c.layers.back()].mlps.back().experts;
    ASSERT_TRUE(experts);
    EXPECT_EQ(experts->count, expected["experts"]["count"]);
    EXPECT_EQ(experts->choice.top_k, expected["experts"]["used"]);
    EXPECT_EQ(experts->expert.width.size, expected["experts"]["width"]);
    EXPECT_TRUE(experts->choice.normalized);  // by the class's code
  }
}

// Names what each layer mixes with: attention, a state, or nothing.
std::vector<std::string> mixer_kinds(const DecoderSpec& spec) {
  std::vector<std::string> kinds;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    std::string& kind = kinds.emplace_back();
    for (const MixerBranch& mixer : spec.layer(i).mixers) {
      const bool attends = std::holds_alternative<AttentionSpec>(mixer.mixer) ||
                           std::holds_alternative<MlaSpec>(mixer.mixer);
      kind += attends ? "a" : "s";
    }
    if (kind.empty()) kind = "-";
  }
  return kinds;
}

// The convolution that all mixers with a state have.
template <class State>
void expect_convolution(const State& state, const Json& expected) {
  EXPECT_EQ(state.convolution.width, expected["width"]);
  EXPECT_EQ(state.convolution.bias, !expected["bias"].is_null() && expected["bias"].get<bool>());
}

void expect_state(const ShortConvolutionSpec& state, const Json& expected, int64_t /*hidden*/) {
  expect_convolution(state, expected);
}
void expect_state(const MambaSpec& state, const Json& expected, int64_t hidden_size) {
  expect_convolution(state, expected);
  EXPECT_EQ(state.channels.units(), expected["expand"].get<int64_t>() * hidden_size);
  EXPECT_EQ(state.key_dim, expected["key_dim"]);
  EXPECT_EQ(state.step_rank, expected["step_rank"]);
}

void expect_state(const LightningSpec& state, const Json& expected, int64_t hidden_size) {
  EXPECT_EQ(state.heads.units(), expected["heads"]);
  EXPECT_EQ(state.heads.unit, hidden_size / state.heads.units());
}

// Gated DeltaNet or Mamba-2.
template <class State>
void expect_state(const State& state, const Json& expected, int64_t /*hidden*/) {
  expect_convolution(state, expected);
  EXPECT_EQ(state.heads.units(), expected["heads"]);
  EXPECT_EQ(state.key_heads.units(), expected["key_heads"]);
  EXPECT_EQ(state.key_dim, expected["key_dim"]);
  EXPECT_EQ(state.value_dim, expected["value_dim"]);
}

void expect_mixer(const DecoderSpec& model, const AttentionSpec& a, const Json& expected) {
  EXPECT_EQ(a.heads.units(), expected["num_attention_heads"]);
  EXPECT_EQ(a.kv_heads.units(), expected["num_key_value_heads"]);
  if (!turns(model, a)) return;
  const Json& ropes = expected["rope_parameters"];
  const char* layers = a.window > 0 ? "sliding_attention" : "full_attention";
  expect_rope(model.ropes[a.angles], a.head_dim, ropes.contains(layers) ? ropes[layers] : ropes);
}

void expect_mixer(const DecoderSpec& model, const MlaSpec& mla, const Json& expected) {
  EXPECT_EQ(mla.heads, expected["num_attention_heads"]);
  ASSERT_EQ(mla.rope.has_value(), expected.contains("rope_parameters"));
  if (mla.rope) expect_rope(model.ropes[mla.angles], mla.rope_dim, expected["rope_parameters"]);
}
void expect_mixer(const DecoderSpec&, const SummaryAttentionSpec&, const Json&) { FAIL(); }

template <class State>
void expect_mixer(const DecoderSpec& model, const State& state, const Json& expected) {
  expect_state(state, expected["state"], model.hidden_size);
}

TEST(Families, AbsentKeysOfModelsWithStatesHaveTheDefaultsOfTransformers) {
  const Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  for (const auto& [architecture, expected] : golden["hybrids"].items()) {
    SCOPED_TRACE(architecture);
    const DecoderSpec c = parse_family(architecture, expected["given"]);
    EXPECT_EQ(c.vocab_size, expected["vocab_size"]);
    EXPECT_EQ(c.hidden_size, expected["hidden_size"]);
    EXPECT_EQ(c.norm.params.eps, expected["eps"].get<float>());
    EXPECT_EQ(c.tie_word_embeddings, expected["tie_word_embeddings"]);
    EXPECT_EQ(c.max_positions, expected.value("max_position_embeddings", kMaxPositions));
    EXPECT_EQ(mixer_kinds(c), expected["layers"].get<std::vector<std::string>>());
    for (const LayerSpec& layer : c.kinds) {
      for (const MixerBranch& mixer : layer.mixers) {
        std::visit([&](const auto& held) { expect_mixer(c, held, expected); }, mixer.mixer);
      }
    }
  }
}

TEST(Families, ANullIsNoAbsentKey) {
  DecoderSpec c = parse_family("MistralForCausalLM", {{"num_key_value_heads", nullptr},
                                                      {"head_dim", nullptr},
                                                      {"sliding_window", nullptr},
                                                      {"layer_types", nullptr},
                                                      {"rope_scaling", nullptr}});
  EXPECT_EQ(attention(c).kv_heads.units(), 32);
  EXPECT_EQ(attention(c).head_dim, 128);
  EXPECT_THAT(windows(c), Each(0));
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings", "rms_norm_eps",
                          "hidden_act", "tie_word_embeddings", "rope_theta"}) {
    for (const char* family :
         {"LlamaForCausalLM", "MistralForCausalLM", "MinistralForCausalLM", "Phi3ForCausalLM"}) {
      EXPECT_THAT(refusal(family, Json::object({{key, nullptr}})),
                  HasSubstr(fmt::format("{} is null", key)));
    }
  }
  for (const char* key : {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions",
                          "activation_function", "layer_norm_epsilon", "tie_word_embeddings"})
    EXPECT_THAT(refusal("GPT2LMHeadModel", Json::object({{key, nullptr}})), HasSubstr(key));
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "rotary_pct", "rotary_emb_base",
        "hidden_act", "layer_norm_eps", "attention_bias", "use_parallel_residual"})
    EXPECT_THAT(refusal("GPTNeoXForCausalLM", Json::object({{key, nullptr}})), HasSubstr(key));
  for (const char* key : {"attention_bias", "mlp_bias"})
    EXPECT_THAT(refusal("LlamaForCausalLM", Json::object({{key, nullptr}})), HasSubstr(key));
}

TEST(Families, WindowsOfLayers) {
  Json config{{"num_hidden_layers", 3},
              {"layer_types", {"sliding_attention", "full_attention", "attention"}}};
  EXPECT_THAT(windows(parse_family("MinistralForCausalLM", config)),
              testing::ElementsAre(4096, 0, 0));
  EXPECT_THAT(windows(parse_family("LlamaForCausalLM", config)), Each(0));  // has none
  // Keys of other families.
  config = {{"sliding_window", 7}, {"use_sliding_window", false}, {"max_window_layers", 2}};
  EXPECT_THAT(windows(parse_family("MistralForCausalLM", config)), Each(7));
  config["sliding_window"] = 0;
  EXPECT_THAT(refusal("MistralForCausalLM", config), HasSubstr("sliding_window"));
}

// Other names of a class for its fields, and names of older releases.
TEST(Families, FieldsUnderOtherNames) {
  const DecoderSpec gpt2 = parse_family("GPT2LMHeadModel", {{"hidden_size", 96},
                                                            {"num_attention_heads", 6},
                                                            {"num_hidden_layers", 3},
                                                            {"max_position_embeddings", 77}});
  EXPECT_EQ(gpt2.hidden_size, 96);
  EXPECT_EQ(attention(gpt2).heads.units(), 6);
  EXPECT_EQ(gpt2.layers.size(), 3u);
  EXPECT_EQ(gpt2.max_positions, 77);
  EXPECT_EQ(parse_family("FalconForCausalLM", {{"n_embed", 142}}).hidden_size, 142);
  const Json kinds{"mamba", "attention"};
  const DecoderSpec granite = parse_family(
      "GraniteMoeHybridForCausalLM",
      {{"num_local_experts", 0}, {"num_hidden_layers", 2}, {"layers_block_type", kinds}});
  EXPECT_THAT(mixer_kinds(granite), testing::ElementsAre("s", "a"));
  const DecoderSpec nemotron = parse_family("NemotronHForCausalLM", {{"layer_types", kinds},
                                                                     {"mamba_n_groups", 2},
                                                                     {"mamba_d_conv", 3},
                                                                     {"mamba_conv_bias", false},
                                                                     {"mamba_dt_min", 0.5}});
  EXPECT_THAT(mixer_kinds(nemotron), testing::ElementsAre("s", "a"));
  const auto& state = std::get<Mamba2Spec>(nemotron.layer(0).mixers.front().mixer);
  EXPECT_EQ(state.norm_parts, 2);
  EXPECT_EQ(state.convolution.width, 3);
  EXPECT_FALSE(state.convolution.bias);
  EXPECT_EQ(state.least_step, 0.5F);
}

// One of several fields counts where they disagree.
TEST(Families, RopeFieldsAsTheClassesReadThem) {
  // The first rope of these is that of layers without a window.
  const DecoderSpec olmo = parse_family("Olmo3ForCausalLM", {{"rope_theta", 700}});
  EXPECT_EQ(olmo.ropes[0].theta, 700);
  EXPECT_EQ(olmo.ropes[1].theta, 500000);
  EXPECT_EQ(parse_family("ApertusForCausalLM", {{"rope_theta", 700}}).ropes[0].theta, 12000000);
  EXPECT_EQ(parse_family("Ministral3ForCausalLM", {{"rope_theta", 700}}).ropes[0].theta, 1000000);
  const Json plain{{"rope_type", "default"},
                   {"llama_4_scaling_beta", 0.5},
                   {"original_max_position_embeddings", 16}};
  const RopeConfig query =
      parse_family("Ministral3ForCausalLM", {{"rope_parameters", plain}}).ropes[1];
  EXPECT_EQ(query.position_beta, 0.5);
  EXPECT_EQ(query.original_positions, 16);
  const std::vector<double> ones(48, 1.0);
  Json phi{{"rope_scaling",
            {{"type", "longrope"},
             {"original_max_position_embeddings", 16},
             {"short_factor", ones},
             {"long_factor", ones}}}};
  EXPECT_EQ(parse_family("Phi3ForCausalLM", phi).keys_end(), 4096);
  phi["original_max_position_embeddings"] = 32;
  EXPECT_EQ(parse_family("Phi3ForCausalLM", phi).keys_end(), 32);
  EXPECT_EQ(parse_family("Phi3ForCausalLM", Json::object()).keys_end(), std::nullopt);
  phi["head_dim"] = 96;
  EXPECT_EQ(parse_family("LlamaForCausalLM", phi).keys_end(), std::nullopt);
}

TEST(Families, WhatAFamilyCannotComputeIsRefused) {
  const std::vector<std::tuple<const char*, const char*, Json>> cases{
      {"CohereForCausalLM", "logit_scale", 0},
      {"GraniteForCausalLM", "residual_multiplier", -1},
      {"GPTJForCausalLM", "rotary_dim", 7},
      {"OPTForCausalLM", "word_embed_proj_dim", 1024},
      {"OPTForCausalLM", "layer_norm_elementwise_affine", false},
      {"OPTForCausalLM", "_remove_final_layer_norm", true},
      {"SmolLM3ForCausalLM", "no_rope_layers", {0, 1}},
      {"BloomForCausalLM", "apply_residual_connection_post_layernorm", true},
      {"Gemma2ForCausalLM", "attn_logit_softcapping", -2},
      {"Gemma3ForCausalLM", "query_pre_attn_scalar", nullptr},
      {"MambaForCausalLM", "state_size", 1000},
      {"MambaForCausalLM", "hidden_act", "gelu"},
      {"MambaForCausalLM", "time_step_rank", "all"},
      {"FalconMambaForCausalLM", "intermediate_size", nullptr},
      {"Gemma3ForCausalLM", "use_bidirectional_attention", true},
      {"PhimoeForCausalLM", "num_experts_per_tok", 3},
      {"Llama4ForCausalLM", "no_rope_layers", {0, 1}},
      {"DeepseekV2ForCausalLM", "topk_method", "noaux_tc"},
      {"DeepseekV3ForCausalLM", "kv_lora_rank", 7},
      {"Gemma4ForCausalLM", "vocab_size_per_layer_input", 7},
      {"Gemma4ForCausalLM", "global_head_dim", 511},
      {"Gemma4ForCausalLM", "num_kv_shared_layers", 30}};
  for (const auto& [family, key, value] : cases)
    EXPECT_THAT(refusal(family, Json::object({{key, value}})), HasSubstr(key)) << family;
  EXPECT_EQ(
      parse_family("Gemma2ForCausalLM", {{"final_logit_softcapping", nullptr}}).logit_soft_cap, 0);
  EXPECT_EQ(parse_family("Gemma2ForCausalLM", Json::object()).logit_soft_cap, 30);
  const Json cap{{"attn_logit_softcapping", 5}};
  EXPECT_EQ(attention(parse_family("Gemma2ForCausalLM", cap)).soft_cap, 5);
  EXPECT_EQ(attention(parse_family("Gemma3ForCausalLM", cap)).soft_cap, 0);  // as in transformers
}

// OPT-350M is so: its last norm is that of the last layer.
TEST(Families, OptMayHaveNormsBehindBlocks) {
  const DecoderSpec spec = parse_family("OPTForCausalLM", {{"do_layer_norm_before", false},
                                                           {"num_hidden_layers", 3},
                                                           {"hidden_size", 96},
                                                           {"word_embed_proj_dim", 48}});
  EXPECT_EQ(spec.norm.name, "model.decoder.layers.2.final_layer_norm");
  for (size_t l = 0; l < 3; ++l) {
    const LayerSpec& layer = spec.layer(l);
    EXPECT_FALSE(layer.mixers.front().norm.exists() || layer.mlps.front().norm.exists());
    EXPECT_TRUE(layer.mixers.front().stream_norm.exists());
    EXPECT_EQ(layer.mlps.front().stream_norm.exists(), l < 2);
  }
  EXPECT_EQ(spec.output_size(), 48);
  EXPECT_EQ(spec.output_projection, "model.decoder.project_out");
}

TEST(Families, LayersRotateAndShareAsConfigJsonSays) {
  const DecoderSpec nope = parse_family("SmolLM3ForCausalLM", {{"num_hidden_layers", 4}});
  for (size_t l = 0; l < 4; ++l)
    EXPECT_EQ(nope.layer(l).mixers.front().attention().rope.has_value(), l != 3) << l;
  const DecoderSpec shared =
      parse_family("Gemma4ForCausalLM", {{"num_hidden_layers", 12}, {"num_kv_shared_layers", 5}});
  auto of = [&](size_t l) { return shared.layer(l).mixers.front().attention().shared_with; };
  EXPECT_EQ(of(6), std::nullopt);
  EXPECT_EQ(of(7), 6u);   // a window
  EXPECT_EQ(of(11), 5u);  // none
  EXPECT_EQ(shared.layer(11).mixers.front().attention().head_dim, 512);
  EXPECT_THAT(windows(parse_family("SmolLM3ForCausalLM",
                                   {{"num_hidden_layers", 2},
                                    {"sliding_window", 5},
                                    {"layer_types", {"sliding_attention", "full_attention"}}})),
              testing::ElementsAre(5, 0));
}

TEST(Families, RopeOnAPartOfEachHead) {
  Json config{{"hidden_size", 128}, {"num_attention_heads", 2}};
  EXPECT_EQ(parse_family("GPTNeoXForCausalLM", config).ropes.front().dim, 16);
  config["rotary_pct"] = 0.5;
  EXPECT_EQ(parse_family("GPTNeoXForCausalLM", config).ropes.front().dim, 32);
  config["rope_parameters"] = {{"rope_theta", 500.0}, {"partial_rotary_factor", 0.75}};
  EXPECT_EQ(parse_family("GPTNeoXForCausalLM", config).ropes.front().dim, 48);
  EXPECT_EQ(parse_family("GPTNeoXForCausalLM", config).ropes.front().theta, 500);
  config = {{"hidden_size", 128}, {"num_attention_heads", 2}, {"partial_rotary_factor", 0.75}};
  EXPECT_EQ(parse_family("Phi3ForCausalLM", config).ropes.front().dim, 48);
  EXPECT_EQ(parse_family("LlamaForCausalLM", config).ropes.front().dim,
            64);                           // all, as in transformers
  config["partial_rotary_factor"] = 0.05;  // 3 of 64: two pairs, by the frequencies of 3
  EXPECT_EQ(parse_family("Phi3ForCausalLM", config).ropes.front().dim, 4);
  EXPECT_EQ(parse_family("Phi3ForCausalLM", config).ropes.front().base_dim, 3);
  for (double part : {0.0, -0.5, 1.5, 0.01}) {
    config["partial_rotary_factor"] = part;
    EXPECT_THAT(refusal("Phi3ForCausalLM", config), HasSubstr("partial_rotary_factor")) << part;
  }
}

// A model that has a language model in it: sizes, names and what is beside it.
TEST(Families, WrappersAreTheirLanguageModel) {
  Json text = test::tiny_config();
  text.erase("architectures");
  text["tie_word_embeddings"] = true;
  text["eos_token_id"] = 3;
  for (const char* inner : {"text_config", "llm_config", "language_config"}) {
    test::TempDir dir;
    const Json config{{"architectures", {"Mistral3ForConditionalGeneration"}},
                      {"model_type", "mistral3"},
                      {"dtype", "float16"},
                      {"tie_word_embeddings", false},
                      {"vision_config", {{"hidden_size", 5}}},
                      {inner, text}};
    test::write_file(dir / "config.json", config.dump());
    Model model = read_model(*open_model(dir.path()));
    EXPECT_EQ(model.files.architecture, "LlamaForCausalLM");
    EXPECT_EQ(model.files.dtype, DType::f16);
    EXPECT_THAT(model.files.eos_ids, testing::ElementsAre(3));
    EXPECT_FALSE(model.spec.tie_word_embeddings);
    EXPECT_EQ(model.spec.hidden_size, test::tiny_config()["hidden_size"]);
  }
}

// The head is tied or not where nothing says so; and both models are in one object.
TEST(Families, WrappersOfOtherForms) {
  Json text = test::tiny_config();
  text.erase("architectures");
  text.erase("tie_word_embeddings");
  for (bool head : {true, false}) {
    std::vector<test::TinyTensor> tensors{{"model.norm.weight", {2}, "BF16", "nnnn"}};
    if (head) tensors.push_back({"lm_head.weight", {1, 2}, "BF16", "hhhh"});
    test::TempDir dir;
    test::write_checkpoint(dir.path(), {{"model_type", "other"}, {"text_config", text}}, tensors,
                           1);
    const io::CheckpointIndex index = io::open_checkpoint(dir.path());
    EXPECT_EQ(build_model(dir.path(), Rank{}, &index).spec.tie_word_embeddings, !head);
  }
  text["architectures"] = {"Qwen2VLForConditionalGeneration"};
  text["model_type"] = "qwen2_vl";
  text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}};
  text["vision_config"] = {{"hidden_size", 5}};
  test::TempDir dir;
  test::write_file(dir / "config.json", text.dump());
  const Model flat = read_model(*open_model(dir.path()));
  EXPECT_EQ(flat.files.architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(flat.files.wrapper);
}

// Whatever is beside the language model is known; what is missing of that is not.
TEST(Families, WrappersHaveOtherParts) {
  const Json config{{"model_type", "other"}, {"text_config", test::tiny_config()}};
  for (const std::string prefix :
       {"model.", "model.text_model.", "language_model.model.", "thinker.model."}) {
    test::TempDir dir;
    std::vector<test::TinyTensor> tensors;
    for (const std::string& name : {prefix + "norm.weight", prefix + "extra.weight",
                                    std::string("model.connector.x"), std::string("newline")})
      tensors.push_back({name, {2}, "BF16", "nnnn"});
    test::write_checkpoint(dir.path(), config, tensors, 1);
    const io::CheckpointIndex index = io::open_checkpoint(dir.path());
    const Model model = build_model(dir.path(), Rank{}, &index);
    EXPECT_EQ(model.spec.norm.name, prefix + "norm");
    EXPECT_THAT(model.ignorable,
                testing::IsSupersetOf(
                    {prefix.starts_with("model.") ? "model.connector.*" : "model.*", "newline"}));
    EXPECT_EQ(std::ranges::count(model.ignorable, prefix + "extra.*"), prefix == "model.");
  }
}

// A model saved without its head has names without the head's module around it.
TEST(Families, NamesMayHaveNoPrefix) {
  const auto source = [](const Json& config, const std::string& norm, bool needs_head = true) {
    test::TempDir dir;
    test::write_checkpoint(dir.path(), config,
                           {{norm, {2}, "BF16", "nnnn"}, {"model_x", {2}, "BF16", "nnnn"}}, 1);
    const io::CheckpointIndex index = io::open_checkpoint(dir.path());
    Model model = read_model(*open_model(dir.path()));
    build_root(model, Rank{}, &index, needs_head);
    EXPECT_EQ(model.root->has_head(), needs_head);
    return model.spec.kinds.front().mixers.front().norm.name + " " + model.spec.head;
  };
  const Json llama = test::tiny_config();
  EXPECT_EQ(source(llama, "model.norm.weight"), "model.layers.{}.input_layernorm lm_head");
  EXPECT_EQ(source(llama, "norm.weight"), "layers.{}.input_layernorm lm_head");
  EXPECT_EQ(source(llama, "embed_tokens.weight", false), "layers.{}.input_layernorm lm_head");
  EXPECT_EQ(source(llama, "other.weight"), "model.layers.{}.input_layernorm lm_head");
  const Json wrapper{{"model_type", "other"}, {"text_config", llama}};
  EXPECT_EQ(source(wrapper, "language_model.norm.weight", false),
            "language_model.layers.{}.input_layernorm lm_head");
  EXPECT_EQ(source(wrapper, "norm.weight"), "layers.{}.input_layernorm lm_head");
  const Json bloom{{"architectures", {"BloomForCausalLM"}}};
  EXPECT_EQ(source(bloom, "ln_f.weight"), "h.{}.input_layernorm lm_head");
  const Json opt{{"architectures", {"OPTForCausalLM"}}};
  EXPECT_EQ(source(opt, "decoder.final_layer_norm.weight"),
            "decoder.layers.{}.self_attn_layer_norm lm_head");
}

TEST(Families, Gemma4SaysSizesByKindOrByLayer) {
  Json config{{"architectures", {"Gemma4ForCausalLM"}},
              {"hidden_size", 48},
              {"num_hidden_layers", 4},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 16},
              {"attention_k_eq_v", true},
              {"vocab_size", 128},
              {"vocab_size_per_layer_input", 128},
              {"layer_types",
               {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}};
  const auto sizes = [&] {
    std::vector<std::array<int64_t, 3>> all;
    const DecoderSpec spec = parse_family("Gemma4ForCausalLM", config);
    for (size_t l = 0; l < 4; ++l) {
      const AttentionSpec& a = spec.layer(l).mixers.front().attention();
      all.push_back({a.head_dim, a.kv_heads.units(), spec.layer(l).mlps.front().mlp.width.size});
    }
    EXPECT_EQ(spec.ropes.back().dim, all.back()[0]);
    return all;
  };
  using Sizes = std::vector<std::array<int64_t, 3>>;
  config["global_head_dim"] = 32;
  config["num_global_key_value_heads"] = 1;
  const Sizes by_kind{{16, 2, 9216}, {32, 1, 9216}, {16, 2, 9216}, {32, 1, 9216}};
  EXPECT_EQ(sizes(), by_kind);
  config.erase("global_head_dim");
  config.erase("num_global_key_value_heads");
  const Json full{{"head_dim", 32}, {"num_key_value_heads", 1}};
  config["per_layer_config"] = {{"1", full}, {"3", full}};
  EXPECT_EQ(sizes(), by_kind);
  config["per_layer_config"]["2"] = {
      {"num_key_value_heads", 4}, {"intermediate_size", 64}, {"hidden_size", 48}};
  Sizes own = by_kind;
  own[2] = {16, 4, 64};
  EXPECT_EQ(sizes(), own);
  config["per_layer_config"] = {{"1", {{"head_dim", 32}}}};
  EXPECT_THAT(refusal("Gemma4ForCausalLM", config), HasSubstr("layer 1 has another head_dim"));
  config["per_layer_config"] = {{"4", full}};
  EXPECT_THAT(refusal("Gemma4ForCausalLM", config), HasSubstr("4 is no layer"));
  config["per_layer_config"] = {{"3", {{"hidden_size", 96}}}};
  EXPECT_THAT(refusal("Gemma4ForCausalLM", config), HasSubstr("hidden_size of a single layer"));
}

// Transformers 5.24 saves models so whose layers differ.
TEST(Families, LayersMayHaveSizesOfTheirOwn) {
  test::TempDir dir;
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 3;
  const auto spec = [&] {
    test::write_file(dir / "config.json", config.dump());
    return read_model(*open_model(dir.path())).spec;
  };
  config["per_layer_config"] = {{"1", {{"intermediate_size", 24}, {"skip", Json::array()}}},
                                {"2", {{"num_key_value_heads", 1}}}};
  const DecoderSpec own = spec();
  EXPECT_EQ(own.kinds.size(), 3u);
  EXPECT_EQ(own.layer(1).mlps.front().mlp.width.size, 24);
  EXPECT_EQ(own.layer(1).mixers.front().attention().kv_heads.units(),
            config["num_key_value_heads"]);
  EXPECT_EQ(own.layer(2).mixers.front().attention().kv_heads.units(), 1);
  config["per_layer_config"] = {{"1", {{"hidden_size", config["hidden_size"]}}}};
  EXPECT_EQ(spec().kinds.size(), 1u);
  for (const auto& [json, fault] :
       {std::pair{Json{{"1", {{"rope_theta", 5}}}}, "1: rope_theta of a single layer"},
        {Json{{"3", Json::object()}}, "3 is no layer of 3"},
        {Json{{"1", {{"num_key_value_heads", 5}}}}, "cannot have"},
        {Json(5), "must be an object"}}) {
    config["per_layer_config"] = json;
    try {
      spec();
      ADD_FAILURE() << json;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(fault));
    }
  }
}

struct Naming {
  Json architectures;  // discarded: the key is absent
  Json model_type;
  const char* family;  // or what a refusal says
  bool warns = false;
};

TEST(Families, AreFoundByArchitectureElseByModelType) {
  const Json absent(Json::value_t::discarded);
  const std::vector<Naming> namings{
      {{"LlamaForCausalLM"}, absent, "LlamaForCausalLM"},
      {{"LLaMAForCausalLM"}, "llama", "LlamaForCausalLM"},
      {{"Qwen3Model"}, "qwen3", "Qwen3ForCausalLM"},
      {{"GPT2Model"}, absent, "GPT2LMHeadModel"},
      {{"LLaMAForCausalLM"}, absent, "LlamaForCausalLM"},
      {absent, "llama", "LlamaForCausalLM"},
      {nullptr, "mistral", "MistralForCausalLM"},
      {Json::array(), "ministral", "MinistralForCausalLM"},
      {{"SomeLlamaForCausalLM"}, "llama", "LlamaForCausalLM", true},
      {{"Other", "MistralForCausalLM"}, "other", "MistralForCausalLM"},
      {{"LlamaForCausalLM"}, "mistral", "LlamaForCausalLM", true},
      {{"MistralForCausalLM"}, "mistral", "MistralForCausalLM"},
      {{"MistralForCausaLM"}, absent, "nearest supported one is MistralForCausalLM"},
      {{"FrobnicatorForCausalLM"}, "frobnicator", "architectures names FrobnicatorForCausalLM"},
      {absent, "lama", "nearest supported one is LlamaForCausalLM"},
      {absent, absent, "architectures"},
      {{"a\nb"}, absent, "a?b"},
  };
  for (const Naming& n : namings) {
    Json config = Json::object();
    if (!n.architectures.is_discarded()) config["architectures"] = n.architectures;
    if (!n.model_type.is_discarded()) config["model_type"] = n.model_type;
    SCOPED_TRACE(config.dump());
    testing::internal::CaptureStderr();
    std::string found;
    try {
      found = find_family(JsonFields(config, "config.json")).architecture;
    } catch (const Error& e) {
      found = e.what();
      EXPECT_THAT(
          found, AllOf(HasSubstr("config.json"), HasSubstr("LlamaForCausalLM, MllamaForCausalLM")));
    }
    EXPECT_THAT(found, HasSubstr(n.family));
    EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), !n.warns);
  }
}

}  // namespace
}  // namespace sluice
