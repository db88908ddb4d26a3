// Rules for vectors, from the files of an embedding model.
#include "src/models/embedding_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/json.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using testing::HasSubstr;

Json module(const char* type, const char* path) { return {{"type", type}, {"path", path}}; }
const Json kTransformer = module("sentence_transformers.models.Transformer", "");
const Json kPooling = module("sentence_transformers.models.Pooling", "1_Pooling");
const Json kNormalize = module("sentence_transformers.models.Normalize", "2_Normalize");

EmbeddingRules rules(const Json& modules, const Json& pooling) {
  test::TempDir dir;
  std::filesystem::create_directory(dir / "1_Pooling");
  test::write_file(dir / "modules.json", modules.dump());
  test::write_file(dir / "1_Pooling/config.json", pooling.dump());
  return read_embedding_rules(dir.path());
}

EmbeddingRules rules(const Json& pooling) { return rules({kTransformer, kPooling}, pooling); }

TEST(EmbeddingRules, WithoutFilesTheLastTokensVectorHasTheLengthOne) {
  test::TempDir dir;
  const EmbeddingRules none = read_embedding_rules(dir.path());
  EXPECT_EQ(none.pooling, Pooling::last);
  EXPECT_TRUE(none.normalized);
  EXPECT_EQ(none.refusal, "");
}

TEST(EmbeddingRules, EachModeIsKnownByEitherName) {
  const std::vector<std::tuple<const char*, const char*, Pooling>> modes{
      {"pooling_mode_mean_tokens", "mean", Pooling::mean},
      {"pooling_mode_cls_token", "cls", Pooling::first},
      {"pooling_mode_max_tokens", "max", Pooling::max},
      {"pooling_mode_lasttoken", "lasttoken", Pooling::last},
      {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::weighted_mean},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::root_mean}};
  for (const auto& [flag, name, pooling] : modes) {
    Json flags{{"word_embedding_dimension", 64}, {"include_prompt", true}};
    for (const auto& each : modes)
      flags[std::get<0>(each)] = std::string(std::get<0>(each)) == flag;
    for (const Json& config :
         {flags, Json{{"pooling_mode", name}}, Json{{"pooling_mode", {name}}}}) {
      const EmbeddingRules read = rules(config);
      EXPECT_EQ(read.refusal, "");
      EXPECT_EQ(read.pooling, pooling) << name;
      EXPECT_FALSE(read.normalized);
    }
  }
  EXPECT_EQ(rules(Json{{"word_embedding_dimension", 64}}).pooling, Pooling::mean);
  EXPECT_EQ(rules(Json{{"pooling_mode_cls_token", true}}).pooling, Pooling::first);
}

TEST(EmbeddingRules, NormalizeIsAModule) {
  EXPECT_TRUE(rules({kTransformer, kPooling, kNormalize}, {{"pooling_mode", "mean"}}).normalized);
  const Json renamed = {module("sentence_transformers.base.modules.transformer.Transformer", ""),
                        module("sentence_transformers.modules.pooling.Pooling", "1_Pooling"),
                        module("sentence_transformers.modules.normalize.Normalize", "2")};
  EXPECT_TRUE(rules(renamed, {{"pooling_mode", "mean"}}).normalized);
}

TEST(EmbeddingRules, WhatCannotBeFollowedIsSaid) {
  const Json mean{{"pooling_mode", "mean"}};
  const Json dense = module("sentence_transformers.models.Dense", "2_Dense");
  const Json outside = module("sentence_transformers.models.Pooling", "../1_Pooling");
  const Json nowhere = module("sentence_transformers.models.Pooling", "3_Pooling");
  for (const auto& [modules, pooling, mention] : std::vector<std::tuple<Json, Json, const char*>>{
           {{kTransformer, kPooling, dense}, mean, "module 2 is a Dense"},
           {{kTransformer, kPooling, dense, kNormalize}, mean, "Dense"},
           {{kTransformer, kNormalize}, mean, "Normalize"},
           {Json::array({kTransformer}), mean, "no module is a Pooling"},
           {{kTransformer, kPooling, kPooling}, mean, "Pooling"},
           {{module("custom_st.Transformer3", ""), kPooling}, mean, "Transformer3"},
           {{kTransformer, outside}, mean, "leaves"},
           {{kTransformer, module("a.Pooling", "/tmp")}, mean, "leaves"},
           {{kTransformer, nowhere}, mean, "3_Pooling"},
           {{kTransformer, kPooling}, {{"pooling_mode", "attention"}}, "attention"},
           {{kTransformer, kPooling}, {{"pooling_mode", {"mean", "max"}}}, "mean"},
           {{kTransformer, kPooling}, {{"pooling_mode", 5}}, "5"},
           {{kTransformer, kPooling},
            {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}},
            "several"},
           {{kTransformer, kPooling}, {{"pooling_mode_mean_tokens", false}}, "no pooling mode"},
           {{kTransformer, kPooling}, {{"pooling_mode_whitening", true}}, "whitening"},
           {Json::object(), mean, "modules.json"},
           {Json::array({"Pooling"}), mean, "modules.json"},
           {{kTransformer, kPooling}, Json::array(), "1_Pooling/config.json"}})
    EXPECT_THAT(rules(modules, pooling).refusal, HasSubstr(mention)) << modules << pooling;
}

}  // namespace
}  // namespace sluice
