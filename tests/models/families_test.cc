// Which family a config.json belongs to, and what it takes for keys that are absent or null.
#include "src/models/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/base/error.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

DecoderSpec parse(const std::string& architecture, const Json& fields) {
  Json config = fields;
  config["architectures"] = {architecture};
  JsonFields json(config, "config.json");
  return find_family(json).parse(json);
}

// Of a model whose layers differ in nothing but their windows.
const AttentionSpec& attention(const DecoderSpec& spec) {
  return spec.kinds.front().mixers.front().attention;
}
const MlpSpec& mlp(const DecoderSpec& spec) { return spec.kinds.front().mlps.front().mlp; }
std::vector<int64_t> windows(const DecoderSpec& spec) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    all.push_back(spec.layer(i).mixers.front().attention.window);
  return all;
}

std::string refusal(const std::string& architecture, const Json& fields) {
  try {
    parse(architecture, fields);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    return e.what();
  }
  return "accepted";
}

// tests/data/configs/make_defaults.py asked transformers.
TEST(Families, AbsentKeysHaveTheDefaultsOfTransformers) {
  Json golden = parse_json(
      test::read_file(std::string(SLUICE_SOURCE_DIR) + "/tests/data/configs/config_defaults.json"),
      "config_defaults.json");
  ASSERT_EQ(golden["classes"].size(), families().size());
  for (const auto& [architecture, expected] : golden["classes"].items()) {
    SCOPED_TRACE(architecture);
    DecoderSpec c = parse(architecture, Json::object());
    EXPECT_EQ(c.vocab_size, expected["vocab_size"]);
    EXPECT_EQ(c.hidden_size, expected["hidden_size"]);
    EXPECT_EQ(mlp(c).width.size, expected["intermediate_size"]);
    EXPECT_EQ(std::ssize(c.layers), expected["num_hidden_layers"]);
    EXPECT_EQ(attention(c).heads.units(), expected["num_attention_heads"]);
    EXPECT_EQ(attention(c).kv_heads.units(), expected["num_key_value_heads"]);
    EXPECT_EQ(attention(c).head_dim, expected["head_dim"]);
    EXPECT_EQ(c.max_positions, expected["max_position_embeddings"]);
    EXPECT_EQ(c.norm.params.eps, expected["rms_norm_eps"].get<float>());
    EXPECT_EQ(expected["hidden_act"], "silu");
    EXPECT_EQ(mlp(c).activation, Activation::silu);
    EXPECT_EQ(c.tie_word_embeddings, expected["tie_word_embeddings"]);
    EXPECT_EQ(attention(c).qkv.bias || attention(c).output.bias,
              expected.value("attention_bias", false));
    EXPECT_EQ(mlp(c).up.bias || mlp(c).down.bias, expected.value("mlp_bias", false));
    EXPECT_EQ(expected["rope_parameters"]["rope_type"], "default");
    EXPECT_EQ(c.rope->kind, RopeKind::plain);
    EXPECT_EQ(c.rope->theta, expected["rope_parameters"]["rope_theta"]);
    EXPECT_THAT(windows(c), Each(expected.value("sliding_window", 0)));
  }
}

TEST(Families, ANullIsNoAbsentKey) {
  DecoderSpec c = parse("MistralForCausalLM", {{"num_key_value_heads", nullptr},
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
    for (const Family& family : families()) {
      EXPECT_THAT(refusal(std::string(family.architecture), Json::object({{key, nullptr}})),
                  HasSubstr(fmt::format("{} is null", key)));
    }
  }
  for (const char* key : {"attention_bias", "mlp_bias"})
    EXPECT_THAT(refusal("LlamaForCausalLM", Json::object({{key, nullptr}})), HasSubstr(key));
}

TEST(Families, WindowsOfLayers) {
  Json config{{"num_hidden_layers", 3},
              {"layer_types", {"sliding_attention", "full_attention", "attention"}}};
  EXPECT_THAT(windows(parse("MinistralForCausalLM", config)), testing::ElementsAre(4096, 0, 0));
  EXPECT_THAT(windows(parse("LlamaForCausalLM", config)), Each(0));  // has none
  // Keys of other families.
  config = {{"sliding_window", 7}, {"use_sliding_window", false}, {"max_window_layers", 2}};
  EXPECT_THAT(windows(parse("MistralForCausalLM", config)), Each(7));
  config["sliding_window"] = 0;
  EXPECT_THAT(refusal("MistralForCausalLM", config), HasSubstr("sliding_window"));
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
      {{"LLaMAForCausalLM"}, absent, "LlamaForCausalLM"},
      {absent, "llama", "LlamaForCausalLM"},
      {nullptr, "mistral", "MistralForCausalLM"},
      {Json::array(), "ministral", "MinistralForCausalLM"},
      {{"SomeLlamaForCausalLM"}, "llama", "LlamaForCausalLM", true},
      {{"Other", "MistralForCausalLM"}, "other", "MistralForCausalLM"},
      {{"LlamaForCausalLM"}, "mistral", "LlamaForCausalLM", true},
      {{"MistralForCausalLM"}, "mistral", "MistralForCausalLM"},
      {{"MistralForCausaLM"}, absent, "nearest that is supported is MistralForCausalLM"},
      {{"FrobnicatorForCausalLM"}, "frobnicator", "architectures names FrobnicatorForCausalLM"},
      {absent, "lama", "nearest that is supported is LlamaForCausalLM"},
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
      EXPECT_THAT(found, AllOf(HasSubstr("config.json"), HasSubstr("LlamaForCausalLM, Mistral")));
    }
    EXPECT_THAT(found, HasSubstr(n.family));
    EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), !n.warns);
  }
}

}  // namespace
}  // namespace sluice
