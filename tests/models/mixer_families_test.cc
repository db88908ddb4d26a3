// Fields of config.json that families with states, latent attention, or scaled or clamped queries
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "tests/models/families.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(MixerFamilies, AbsentKeysOfModelsWithLatentAttentionHaveTheDefaultsOfTransformers) {
  const Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  for (const auto& [architecture, expected] : golden["latents"].items()) {
    SCOPED_TRACE(architecture);
    const DecoderSpec c = parse_family(architecture, Json::object());
    EXPECT_EQ(c.vocab_size, expected["vocab_size"]);
    EXPECT_EQ(c.hidden_size, expected["hidden_size"]);
    int64_t mixers = 0;
    for (size_t l = 0; l < c.layers.size(); ++l) mixers += std::ssize(c.layer(l).mixers);
    EXPECT_EQ(mixers, expected["num_hidden_layers"]);
    EXPECT_EQ(c.max_positions, expected["max_position_embeddings"]);
    EXPECT_EQ(c.norm.params.eps, expected["rms_norm_eps"].get<float>());
    EXPECT_EQ(c.kinds.front().mlps.front().mlp.width.size, expected["intermediate_size"]);
    const auto& mla = std::get<MlaSpec>(c.kinds.front().mixers.front().mixer);
    EXPECT_EQ(mla.heads, expected["num_attention_heads"]);
    EXPECT_EQ(mla.query_rank, expected["q_lora_rank"]);
    EXPECT_EQ(mla.rank, expected["kv_lora_rank"]);
    EXPECT_EQ(mla.nope_dim, expected["qk_nope_head_dim"]);
    EXPECT_EQ(mla.rope_dim, expected["qk_rope_head_dim"]);
    EXPECT_EQ(mla.value_dim, expected["v_head_dim"]);
    EXPECT_EQ(mla.kv_norm.params.eps, expected["latent_eps"].get<float>());
    const Json& ropes = expected["rope_parameters"];
    const Json& rope = ropes.contains("indexed_attention") ? ropes["indexed_attention"] : ropes;
    EXPECT_EQ(c.ropes.front().theta, rope["rope_theta"]);
    EXPECT_EQ(c.ropes.front().factor, rope.value("factor", 1.0));
    EXPECT_EQ(c.ropes.front().dim, expected["qk_rope_head_dim"]);
    const double m = rope.contains("factor") ? yarn_mscale(rope["factor"], 1) : 1;
    EXPECT_NEAR(mla.scale, m * m / std::sqrt(static_cast<double>(mla.query_dim())), 1e-6);
    EXPECT_EQ(mla.chosen, expected.value("index_topk", 0));
    EXPECT_EQ(mla.indexer ? mla.indexer->heads : 0, expected.value("index_n_heads", 0));
    EXPECT_EQ(mla.indexer ? mla.indexer->head_dim : 0, expected.value("index_head_dim", 0));
    if (!expected.contains("n_routed_experts")) continue;
    const ExpertsSpec& experts = *c.kinds[c.layers.back()].mlps.front().experts;
    EXPECT_EQ(experts.count, expected["n_routed_experts"]);
    if (!expected["num_experts_per_tok"].is_null()) {
      EXPECT_EQ(experts.choice.top_k, expected["num_experts_per_tok"]);
    }
    const int64_t width = expected["moe_intermediate_size"];
    EXPECT_EQ(experts.expert.width.size, width);
    EXPECT_EQ(experts.shared ? experts.shared->width.size : 0,
              width * expected.value("n_shared_experts", int64_t{0}));
    EXPECT_EQ(experts.choice.normalized, expected.value("norm_topk_prob", false));
    EXPECT_EQ(experts.choice.factor, expected["routed_scaling_factor"].get<float>());
    const auto groups = [&](const char* key) {
      const bool none = !expected.contains(key) || expected[key].is_null();
      return none ? int64_t{1} : expected[key].get<int64_t>();
    };
    EXPECT_EQ(experts.choice.groups, groups("n_group"));
    EXPECT_EQ(experts.choice.top_k_groups, groups("topk_group"));
  }
}

// Kimi Linear's says the hidden size over the heads, Ling's the size of its linear attention's.
TEST(MixerFamilies, HeadDimIsNoneOfLatentAttention) {
  for (const char* family :
       {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
        "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM", "KimiLinearForCausalLM",
        "BailingHybridForCausalLM", "MiniCPM3ForCausalLM", "AXK1ForCausalLM", "AXK2ForCausalLM",
        "YoutuForCausalLM", "LongcatFlashForCausalLM", "Mistral4ForCausalLM"}) {
    SCOPED_TRACE(family);
    Json fields = Json::object();
    if (std::string_view(family) == "KimiLinearForCausalLM") fields["linear_head_dim"] = 128;
    const DecoderSpec absent = parse_family(family, fields);
    for (const Json& dim : {Json(72), Json(128), Json()}) {
      if (std::string_view(family) == "BailingHybridForCausalLM" && dim != 128) continue;
      fields["head_dim"] = dim;
      EXPECT_EQ(parse_family(family, fields), absent) << dim.dump();
    }
  }
}

TEST(MixerFamilies, DeltaAttentionsKeysHaveOtherNames) {
  for (const char* family : {"KimiLinearForCausalLM", "BailingHybridForCausalLM"}) {
    const Json own{{"num_expert_group", 4}, {"topk_group", 2}, {"moe_renormalize", false}};
    const Json other{{"n_group", 4}, {"topk_group", 2}, {"norm_topk_prob", false}};
    const DecoderSpec spec = parse_family(family, own);
    EXPECT_EQ(parse_family(family, other), spec);
    EXPECT_EQ(spec.kinds.back().mlps.front().experts->choice.groups, 4);
  }
}

// The layers whose indexer is that of a layer before, as GLM-5's config.json says it.
TEST(MixerFamilies, IndexersAreShared) {
  const auto has_indexer = [](Json config) {
    config["num_hidden_layers"] = 5;
    const DecoderSpec spec = parse_family("GlmMoeDsaForCausalLM", config);
    std::string layers;
    for (size_t l = 0; l < spec.layers.size(); ++l) {
      const auto& mla = std::get<MlaSpec>(spec.layer(l).mixers.front().mixer);
      EXPECT_EQ(mla.chosen, 2048);
      layers += mla.indexer ? 'F' : 'S';
    }
    return layers;
  };
  EXPECT_EQ(has_indexer(Json::object()), "FFFFF");
  EXPECT_EQ(has_indexer({{"index_topk_freq", 3}}), "FFSSF");
  EXPECT_EQ(has_indexer({{"index_topk_freq", 2}, {"index_skip_topk_offset", 1}}), "FSFSF");
  EXPECT_EQ(has_indexer({{"index_topk_pattern", "FSSFS"}}), "FSSFS");
  EXPECT_EQ(has_indexer({{"indexer_types", {"full", "shared", "full", "full", "full"}}}), "FSFFF");
}

// Its class does not read time_step_limit; others do, with infinity as Python and transformers 5
// write it.
TEST(MixerFamilies, LimitsOfSteps) {
  auto limits = [](const char* family, const char* text) {
    Json config = parse_json(text, "config.json");
    config["hybrid_override_pattern"] = "M";
    const DecoderSpec spec = parse_family(family, config);
    const auto& state = std::get<Mamba2Spec>(spec.layer(0).mixers.front().mixer);
    return std::pair(state.least_step, state.most_step);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const char* text = R"({"time_step_limit": [0.25, 0.5], "time_step_min": 0.125})";
  EXPECT_EQ(limits("NemotronHForCausalLM", text), std::pair(0.125F, infinity));
  EXPECT_EQ(limits("NemotronHForCausalLM", "{}"), std::pair(0.001F, infinity));
  EXPECT_EQ(limits("Mamba2ForCausalLM", text), std::pair(0.25F, 0.5F));
  for (const char* most : {"Infinity", R"({"__float__": "Infinity"})"})
    EXPECT_EQ(
        limits("Mamba2ForCausalLM", fmt::format(R"({{"time_step_limit": [0, {}]}})", most).c_str()),
        std::pair(0.0F, infinity));
  for (const char* bad : {"[0, NaN]", "[-Infinity, 1]", "[1, 0]", "[Infinity]", "7"}) {
    const Json config = parse_json(fmt::format(R"({{"time_step_limit": {}}})", bad), "c");
    EXPECT_THAT(refusal("Mamba2ForCausalLM", config), HasSubstr("time_step_limit")) << bad;
  }
}

// AI21-Jamba-Reasoning-3B has such a period, falcon-mamba-7b such an `expand`.
TEST(MixerFamilies, LayersAndChannelsOfMambaAsConfigJsonSays) {
  const DecoderSpec jamba = parse_family("JambaForCausalLM", {{"num_hidden_layers", 28},
                                                              {"num_experts", 1},
                                                              {"attn_layer_period", 14},
                                                              {"attn_layer_offset", 7}});
  for (size_t l = 0; l < 28; ++l)
    EXPECT_EQ(std::holds_alternative<MambaSpec>(jamba.layer(l).mixers.front().mixer),
              l != 7 && l != 21)
        << l;
  EXPECT_THAT(refusal("JambaForCausalLM", Json::object({{"attn_layer_period", 4}})),
              HasSubstr("attn_layer_offset (4) must be below attn_layer_period (4)"));
  EXPECT_FALSE(jamba.kinds.front().mlps.front().experts);
  const DecoderSpec falcon =
      parse_family("FalconMambaForCausalLM",
                   {{"hidden_size", 4096}, {"expand", 16}, {"intermediate_size", 8192}});
  const auto& mamba = std::get<MambaSpec>(falcon.kinds.front().mixers.front().mixer);
  EXPECT_EQ(mamba.channels.size, 8192);
  EXPECT_EQ(mamba.step_rank, 256);
}

TEST(MixerFamilies, Gpt2ScalesScoresAsConfigJsonSays) {
  EXPECT_THAT(refusal("GPT2LMHeadModel", Json::object({{"add_cross_attention", true}})),
              HasSubstr("add_cross_attention"));
  Json config{{"n_inner", nullptr}, {"n_embd", 96}, {"n_head", 6}, {"n_layer", 2}};
  EXPECT_EQ(parse_family("GPT2LMHeadModel", config).kinds.front().mlps.front().mlp.width.size,
            4 * 96);
  auto scale = [&](size_t layer) {
    const DecoderSpec c = parse_family("GPT2LMHeadModel", config);
    return c.layer(layer).mixers.front().attention().scale;
  };
  EXPECT_EQ(scale(1), 0);
  config["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_EQ(scale(0), 0.25F);
  EXPECT_EQ(scale(1), 0.125F);
  config["scale_attn_weights"] = false;
  EXPECT_EQ(scale(1), 0.5F);
}

TEST(MixerFamilies, QueriesKeysAndValuesMayBeClamped) {
  const auto clip = [](const char* family, const Json& fields) {
    return parse_family(family, fields).kinds.front().mixers.front().attention().clip;
  };
  for (const char* family : {"OlmoForCausalLM", "OlmoeForCausalLM"}) {
    EXPECT_EQ(clip(family, Json::object()), 0);
    EXPECT_EQ(clip(family, {{"clip_qkv", nullptr}}), 0);
    EXPECT_EQ(clip(family, {{"clip_qkv", 8}}), 8);
    EXPECT_THAT(refusal(family, {{"clip_qkv", 0}}), HasSubstr("clip_qkv"));
  }
  EXPECT_EQ(clip("MptForCausalLM", {{"attn_config", {{"clip_qkv", 6}}}}), 6);
  EXPECT_EQ(clip("MptForCausalLM", {{"attn_config", {{"clip_qkv", 0}}}}), 0);  // as in transformers
  EXPECT_EQ(clip("DbrxForCausalLM", {{"attn_config", {{"clip_qkv", 8}}}}), 8);
}

// transformers saves the base of DBRX's rope twice, the default one in the rope fields.
TEST(MixerFamilies, DbrxHasTheRopeOfItsAttentionSettings) {
  const Json config{{"attn_config", {{"rope_theta", 500000}}},
                    {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}}}};
  EXPECT_EQ(parse_family("DbrxForCausalLM", config).ropes.front().theta, 500000);
  EXPECT_EQ(parse_family("DbrxForCausalLM", Json::object()).ropes.front().theta, 10000);
}

TEST(MixerFamilies, LanguageModelsOfOcrAttendInTheirOwnWays) {
  const auto spec_of = [](const Json& config) {
    const JsonFields fields(config, "config.json");
    return find_family(fields).parse(fields);
  };
  const auto attention = [](const DecoderSpec& spec) {
    return std::get_if<AttentionSpec>(&spec.kinds.front().mixers.front().mixer);
  };
  const DecoderSpec paddle = spec_of({{"model_type", "paddleocr_vl"}});
  EXPECT_EQ(attention(paddle)->rope, RopePairing::halves);
  const DecoderSpec ernie = spec_of({{"model_type", "ernie4_5"}});
  EXPECT_EQ(attention(ernie)->rope, RopePairing::neighbours);
  Json deepseek{{"model_type", "deepseek_v2"}};
  EXPECT_EQ(attention(spec_of(deepseek)), nullptr);  // latent
  deepseek["use_mla"] = false;
  EXPECT_NE(attention(spec_of(deepseek)), nullptr);
  EXPECT_NE(attention(spec_of({{"model_type", "deepseek_ocr2_text"}})), nullptr);
}

// Keys as StepFun publishes them: lists with a number for each layer, and for those of drafts.
TEST(MixerFamilies, StepHasListsForItsLayers) {
  const Json published{{"num_hidden_layers", 4},
                       {"num_nextn_predict_layers", 1},
                       {"num_attention_heads", 16},
                       {"num_attention_groups", 4},
                       {"head_dim", 16},
                       {"layer_types",
                        {"full_attention", "sliding_attention", "sliding_attention",
                         "full_attention", "sliding_attention"}},
                       {"attention_other_setting", {{"num_attention_heads", 24}}},
                       {"sliding_window", 512},
                       {"moe_layers_enum", "2,3"},
                       {"moe_num_experts", 32},
                       {"moe_top_k", 4},
                       {"share_expert_dims", 96},
                       {"rope_theta", {5000000, 10000, 10000, 5000000, 10000}},
                       {"partial_rotary_factors", {0.5, 1, 1, 0.5, 1}},
                       {"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 2},
                         {"low_freq_factor", 1},
                         {"high_freq_factor", 32},
                         {"original_max_position_embeddings", 131072}}},
                       {"swiglu_limits", {0, 0, 0, 7, 0}},
                       {"swiglu_limits_shared", {0, 0, 0, 16, 0}}};
  const DecoderSpec c = parse_family("Step3p5ForCausalLM", published);
  const AttentionSpec &full = c.layer(0).mixers.front().attention(),
                      &windowed = c.layer(1).mixers.front().attention();
  EXPECT_EQ(full.heads.units(), 16);
  EXPECT_EQ(windowed.heads.units(), 24);
  EXPECT_EQ(windowed.kv_heads.units(), 4);
  EXPECT_EQ(windowed.window, 512);
  EXPECT_EQ(c.ropes[full.angles].kind, RopeKind::llama3);
  EXPECT_EQ(c.ropes[full.angles].dim, 8);
  EXPECT_EQ(c.ropes[full.angles].theta, 5000000);
  EXPECT_EQ(c.ropes[windowed.angles].kind, RopeKind::plain);
  EXPECT_EQ(c.ropes[windowed.angles].dim, 16);
  EXPECT_FALSE(c.layer(1).mlps.front().experts);
  const ExpertsSpec &plain = *c.layer(2).mlps.front().experts,
                    &clamped = *c.layer(3).mlps.front().experts;
  EXPECT_EQ(plain.count, 32);
  EXPECT_EQ(plain.choice.top_k, 4);
  EXPECT_EQ(plain.shared->width.size, 96);
  EXPECT_EQ(plain.expert.activation, Activation::silu);
  EXPECT_EQ(clamped.expert.limit, 7);
  EXPECT_EQ(clamped.shared->limit, 16);
}

TEST(Families, ANullIsFalseWhereTheClassAllowsIt) {
  for (const auto& [family, key] : {std::pair{"DeepseekV3ForCausalLM", "rope_interleave"},
                                    {"DeepseekV3ForCausalLM", "norm_topk_prob"},
                                    {"Ernie4_5ForCausalLM", "use_bias"},
                                    {"GraniteMoeHybridForCausalLM", "mamba_conv_bias"},
                                    {"FalconH1ForCausalLM", "mamba_norm_before_gate"},
                                    {"FalconForCausalLM", "parallel_attn"},
                                    {"CohereForCausalLM", "use_qk_norm"},
                                    {"AfmoeForCausalLM", "mup_enabled"}}) {
    EXPECT_EQ(parse_family(family, Json::object({{key, nullptr}})),
              parse_family(family, Json::object({{key, false}})))
        << family << " " << key;
  }
}

TEST(MixerFamilies, ConvolutionsHaveTheActivationOfMlps) {
  for (const char* family : {"KimiLinearForCausalLM", "BailingHybridForCausalLM",
                             "OlmoHybridForCausalLM", "Qwen3NextForCausalLM"})
    EXPECT_THAT(refusal(family, Json::object({{"hidden_act", "relu2"}})),
                HasSubstr("hidden_act must be silu"));
}

TEST(Families, ExaoneMayHaveBiases) {
  for (const bool bias : {false, true}) {
    const Json config{{"attention_bias", bias}, {"mlp_bias", !bias}};
    const LayerSpec layer = parse_family("ExaoneForCausalLM", config).kinds.front();
    const AttentionSpec& attention = layer.mixers.front().attention();
    const MlpSpec& mlp = layer.mlps.front().mlp;
    EXPECT_EQ(std::pair(attention.qkv.bias, attention.output.bias), std::pair(bias, bias));
    EXPECT_EQ(std::pair(mlp.up.bias, mlp.down.bias), std::pair(!bias, !bias));
  }
}

TEST(Families, Llama4HasChunksWhereLayerTypesSayIt) {
  Json config{{"num_hidden_layers", 4}, {"no_rope_layers", {1, 1, 0, 0}}};
  const auto chunks = [&] {
    const DecoderSpec spec = parse_family("Llama4ForCausalLM", config);
    std::vector<int64_t> sizes;
    for (const size_t kind : spec.layers)
      sizes.push_back(spec.kinds[kind].mixers.front().attention().chunk);
    return sizes;
  };
  EXPECT_EQ(chunks(), (std::vector<int64_t>{8192, 8192, 0, 0}));
  config["layer_types"] = {"chunked_attention", "full_attention", "chunked_attention",
                           "full_attention"};
  EXPECT_EQ(chunks(), (std::vector<int64_t>{8192, 0, 8192, 0}));
}

// Classes whose rope is a default of theirs do not read fields beside it.
TEST(Families, FieldsBesideARopeOfTheClass) {
  for (const char* family :
       {"ApertusForCausalLM", "CwmForCausalLM", "GptOssForCausalLM", "Ministral3ForCausalLM",
        "Mistral4ForCausalLM", "Gemma4ForCausalLM", "Lfm3ForCausalLM", "LagunaForCausalLM",
        "MellumForCausalLM", "MiMoV2FlashForCausalLM"})
    EXPECT_EQ(parse_family(family, {{"rope_theta", 777}}).ropes,
              parse_family(family, Json::object()).ropes)
        << family;
  EXPECT_EQ(parse_family("BambaForCausalLM", {{"partial_rotary_factor", 1.0}}).ropes,
            parse_family("BambaForCausalLM", Json::object()).ropes);
  const Json inner{{"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 1.0}}}};
  EXPECT_EQ(parse_family("BambaForCausalLM", inner).ropes.front().dim, 128);
}

// Nemotron's layers, by block_configs.
TEST(Families, LayersMayLackAttentionOrAnMlp) {
  const auto block = [](Json attention, Json ffn) {
    return Json{{"attention", std::move(attention)}, {"ffn", std::move(ffn)}};
  };
  const Json none{{"no_op", true}}, linear{{"replace_with_linear", true}};
  Json given{{"hidden_size", 96}, {"num_attention_heads", 4}, {"num_hidden_layers", 3}};
  given["block_configs"] = {block({{"n_heads_in_group", 2}}, {{"ffn_mult", 2.625}}),
                            block(none, {{"intermediate_size", 40}}), block(none, none)};
  const DecoderSpec c = parse_family("DeciLMForCausalLM", given);
  EXPECT_EQ(c.layer(0).mixers.front().attention().kv_heads.units(), 2);
  EXPECT_EQ(c.layer(0).mlps.front().mlp.width.size, 256);  // of 168
  EXPECT_TRUE(c.layer(1).mixers.empty());
  EXPECT_EQ(c.layer(1).mlps.front().mlp.width.size, 40);
  EXPECT_TRUE(c.layer(2).mixers.empty() && c.layer(2).mlps.empty());
  const auto fault = [&](const Json& attention, const Json& ffn) {
    given["block_configs"][1] = block(attention, ffn);
    return refusal("DeciLMForCausalLM", given);
  };
  EXPECT_THAT(fault(linear, none), HasSubstr("block_configs[1]: attention: replace_with_linear"));
  EXPECT_THAT(fault({{"n_heads_in_group", 3}}, none), HasSubstr("n_heads_in_group is 3"));
  EXPECT_THAT(fault(none, {{"ffn_mult", -1}}), HasSubstr("ffn_mult is -1"));
  for (const char* key : {"window_length", "num_sink_tokens", "mamba"})
    EXPECT_THAT(fault({{"n_heads_in_group", 2}, {key, 4}}, none),
                HasSubstr(std::string("attention: ") + key));
  for (const auto& [key, value] : {std::pair<const char*, Json>{"moe", {{"experts", 4}}},
                                   {"gated", false},
                                   {"hidden_act", "gelu"}})
    EXPECT_THAT(fault(none, {{"ffn_mult", 1}, {key, value}}),
                HasSubstr(std::string("ffn: ") + key));
  EXPECT_EQ(parse_family("DeciLMForCausalLM", {{"model_type", "deci"}}).ropes[0].theta, 10000);
  given["block_configs"][1] = Json::object();
  EXPECT_THAT(refusal("DeciLMForCausalLM", given), HasSubstr("block_configs[1]: attention"));
  given["block_configs"] = {1};
  EXPECT_THAT(refusal("DeciLMForCausalLM", given), HasSubstr("block_configs must be a list of 3"));
  Json older{{"hidden_size", 96},
             {"num_attention_heads", 4},
             {"num_hidden_layers", 2},
             {"intermediate_size", 64},
             {"num_key_value_heads_per_layer", {4, 1}}};
  EXPECT_EQ(
      parse_family("DeciLMForCausalLM", older).layer(1).mixers.front().attention().kv_heads.units(),
      1);
  older["num_key_value_heads_per_layer"] = {4};
  EXPECT_THAT(refusal("DeciLMForCausalLM", older), HasSubstr("must be 2 numbers from 1 to 4"));
}

TEST(Families, InternLmHasFieldsOfItsOwnForRope) {
  const auto rope = [](const Json& rotary) {
    return parse_family("InternLMForCausalLM", {{"rotary", rotary}}).ropes[0];
  };
  EXPECT_EQ(rope({{"base", 5000}, {"type", "origin"}}).theta, 5000);
  EXPECT_EQ(rope({{"base", 5000}, {"type", "origin"}}).kind, RopeKind::plain);
  const RopeConfig dynamic = rope({{"base", 10000}, {"type", "dynamic"}, {"scaling_factor", 3}});
  EXPECT_EQ(dynamic.kind, RopeKind::dynamic);
  EXPECT_EQ(dynamic.factor, 3);
  EXPECT_THAT(refusal("InternLMForCausalLM", {{"rotary", {{"type", "other"}}}}),
              HasSubstr("rotary: type is other"));
}

TEST(Families, BaichuanTurnsWhereItHasPositions) {
  const auto attention = [](const Json& fields) {
    return parse_family("BaichuanForCausalLM", fields).layer(0).mixers.front().attention();
  };
  EXPECT_EQ(attention({{"max_position_embeddings", 4096}}).alibi, 0);
  EXPECT_EQ(attention({{"model_max_length", 4096}}).alibi, 1);
  EXPECT_FALSE(attention({{"model_max_length", 4096}}).rope);
  EXPECT_THAT(refusal("BaichuanForCausalLM", {{"vocab_size", 125696}}),
              HasSubstr("Baichuan 2's head"));
}

}  // namespace
}  // namespace sluice
