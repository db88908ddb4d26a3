// Fields of config.json that families with experts read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "src/base/error.h"
#include "src/models/registry.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

DecoderSpec parse(const std::string& architecture, const Json& fields) {
  Json config = fields;
  config["architectures"] = {architecture};
  JsonFields json(config, "config.json");
  return find_family(json).parse(json);
}

TEST(ExpertFamilies, TheyHaveTheDefaultsOfTransformers) {
  const Json golden =
      parse_json(test::read_file(test::source_dir() / "tests/data/configs/config_defaults.json"),
                 "config_defaults.json");
  int64_t found = 0;
  for (const char* kind : {"classes", "hybrids"}) {
    for (const auto& [architecture, expected] : golden[kind].items()) {
      if (!expected.contains("experts")) continue;
      SCOPED_TRACE(architecture);
      ++found;
      const Json& e = expected["experts"];
      const DecoderSpec c = parse(architecture, expected.value("given", Json::object()));
      const auto& experts = c.kinds[c.layers.back()].mlps.back().experts;
      ASSERT_TRUE(experts);
      EXPECT_EQ(experts->count, e["count"]);
      EXPECT_EQ(experts->choice.top_k, e["used"]);
      if (!e["normalized"].is_null()) {
        EXPECT_EQ(experts->choice.normalized, e["normalized"]);
      }
      EXPECT_EQ(experts->expert.width.size,
                e["width"].is_null() ? expected["intermediate_size"] : e["width"]);
    }
  }
  EXPECT_GT(found, 10);
}

// Small and pruned models have fewer experts than a token has where nothing says how many.
TEST(ExpertFamilies, DefaultsMustBePossible) {
  const Json nemotron{{"hybrid_override_pattern", "ME"}, {"n_routed_experts", 1}};
  const Json grouped{{"n_routed_experts", 8}, {"n_group", 4}, {"topk_group", 1}, {"head_dim", 128}};
  const std::vector<std::pair<const char*, Json>> cases{
      {"OlmoeForCausalLM", {{"num_experts", 6}}},
      {"MiniMaxM2ForCausalLM", {{"num_local_experts", 6}}},
      {"Qwen3NextForCausalLM", {{"num_experts", 6}}},
      {"Qwen3_5MoeForCausalLM", {{"num_experts", 6}}},
      {"Qwen2MoeForCausalLM", {{"num_experts", 2}}},
      {"MixtralForCausalLM", {{"num_local_experts", 1}}},
      {"GraniteMoeForCausalLM", {{"num_local_experts", 1}}},
      {"Lfm2MoeForCausalLM", {{"num_experts", 2}}},
      {"Ernie4_5_MoeForCausalLM", {{"moe_num_experts", 4}}},
      {"NemotronHForCausalLM", nemotron},
      {"Glm4MoeForCausalLM", grouped}};
  for (const auto& [family, fields] : cases) {
    try {
      parse(family, fields);
      ADD_FAILURE() << family << " takes more experts than there are";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_THAT(e.what(), testing::ContainsRegex("num_experts_per_tok|fewer than the 8"))
          << family;
    }
  }
}

TEST(ExpertFamilies, WhatCannotBeIsRefused) {
  Json dots{{"n_routed_experts", 8}, {"num_experts_per_tok", 2}, {"n_shared_experts", 1}};
  Json nemotron{{"hybrid_override_pattern", "ME"}};
  Json glm{{"head_dim", 128}};
  const std::vector<std::tuple<const char*, Json, const char*, Json>> cases{
      {"JambaForCausalLM", Json::object(), "num_experts", 4096},
      {"JambaForCausalLM", Json::object(), "num_experts", nullptr},
      {"JambaForCausalLM", Json::object(), "expert_layer_offset", 2},
      {"MixtralForCausalLM", Json::object(), "num_experts_per_tok", 9},
      {"MixtralForCausalLM", Json::object(), "num_local_experts", 0},
      {"Glm4MoeForCausalLM", glm, "n_group", 3},
      {"Dots1ForCausalLM", dots, "n_shared_experts", nullptr},
      {"OlmoeForCausalLM", Json::object(), "clip_qkv", 0},
      {"DbrxForCausalLM", Json::object(), "ffn_config", {{"moe_normalize_expert_weights", 2}}},
      {"DbrxForCausalLM", Json::object(), "attn_config", {{"kv_n_heads", 3}}},
      {"NemotronHForCausalLM", nemotron, "moe_latent_size", 4097}};
  for (const auto& [family, fields, key, value] : cases) {
    Json config = fields;
    parse(family, config);
    config[key] = value;
    try {
      parse(family, config);
      ADD_FAILURE() << family << " accepts " << key;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_THAT(e.what(), testing::HasSubstr(key)) << family;
    }
  }
}

TEST(ExpertFamilies, LayersWithExperts) {
  auto sparse = [](const DecoderSpec& spec) {
    std::vector<bool> all;
    for (size_t l = 0; l < spec.layers.size(); ++l)
      all.push_back(spec.layer(l).mlps.back().experts.has_value());
    return all;
  };
  const Json five{{"num_hidden_layers", 5}};
  Json config = five;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  EXPECT_THAT(sparse(parse("Qwen3MoeForCausalLM", config)),
              testing::ElementsAre(false, true, false, false, false));
  EXPECT_THAT(sparse(parse("Ernie4_5_MoeForCausalLM", {{"num_hidden_layers", 5},
                                                       {"moe_layer_interval", 2},
                                                       {"moe_layer_end_index", 2}})),
              testing::ElementsAre(false, true, false, false, false));
  EXPECT_THAT(sparse(parse("JambaForCausalLM", five)),
              testing::ElementsAre(false, true, false, true, false));
  EXPECT_THAT(sparse(parse("MixtralForCausalLM", five)), testing::Each(true));
}

}  // namespace
}  // namespace sluice
