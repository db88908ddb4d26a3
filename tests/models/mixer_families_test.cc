// Fields of config.json that families with states, latent attention or clamped queries read.
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
    EXPECT_EQ(std::ssize(c.layers), expected["num_hidden_layers"]);
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
    EXPECT_EQ(mla.kv_norm.params.eps, 1e-6F);
    const Json& rope = expected["rope_parameters"];
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
    EXPECT_EQ(experts.shared->width.size, width * expected["n_shared_experts"].get<int64_t>());
    EXPECT_EQ(experts.choice.normalized, expected["norm_topk_prob"]);
    EXPECT_EQ(experts.choice.factor, expected["routed_scaling_factor"].get<float>());
    const auto groups = [&](const char* key) {
      return expected[key].is_null() ? int64_t{1} : expected[key].get<int64_t>();
    };
    EXPECT_EQ(experts.choice.groups, groups("n_group"));
    EXPECT_EQ(experts.choice.top_k_groups, groups("topk_group"));
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

}  // namespace
}  // namespace sluice
