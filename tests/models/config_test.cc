// config.json is untrusted: every bad field is refused with one sentence that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "src/base/error.h"
#include "src/models/registry.h"
#include "tests/support/checkpoint.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string config_refusal(const std::string& config_text) {
  test::TempDir dir;
  test::write_file(dir / "config.json", config_text);
  try {
    build_model(dir.path(), Rank{});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
    return e.what();
  }
  return "accepted";
}

struct BadField {
  const char* key;
  Json value;
  const char* mention;
};

TEST(Config, BadFieldsAreNamed) {
  const std::vector<BadField> cases{
      {"hidden_act", "sparkle", "hidden_act"},
      {"architectures", 5, "architectures"},
      {"architectures", {"LlamaForCausalLM", 5}, "architectures"},
      {"torch_dtype", "float99", "torch_dtype"},
      {"rms_norm_eps", -1.0, "rms_norm_eps"},
      {"rms_norm_eps", 0, "rms_norm_eps"},
      {"head_dim", 7, "head_dim"},
      {"head_dim", 0, "head_dim"},
      {"num_attention_heads", 0, "num_attention_heads"},
      {"num_attention_heads", int64_t{1} << 19, "num_attention_heads"},
      {"num_key_value_heads", 4, "num_attention_heads"},
      {"hidden_size", 16.5, "hidden_size"},
      {"hidden_size", nullptr, "hidden_size"},
      {"hidden_size", "16", "hidden_size"},
      {"hidden_size", uint64_t{1} << 63, "hidden_size"},
      {"num_hidden_layers", -2, "num_hidden_layers"},
      {"num_hidden_layers", 1000000000000, "num_hidden_layers"},
      {"vocab_size", int64_t{1} << 50, "vocab_size"},
      {"rope_theta", 0, "rope_theta"},
      {"rope_scaling", "linear", "rope_scaling"},
      {"rope_scaling", {{"rope_type", "wobble"}, {"factor", 2.0}}, "rope_scaling"},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.0}}, "rope_scaling"},
      {"rope_scaling", {{"rope_type", "linear"}}, "factor"},
      {"rope_scaling", {{"type", "llama3"}, {"factor", 2.0}}, "low_freq_factor"},
      {"rope_parameters", {{"rope_theta", -5.0}}, "rope_theta"},
      {"rope_parameters", {{"rope_theta", nullptr}}, "rope_theta"},
      {"rope_parameters", {{"rope_type", nullptr}, {"type", "linear"}}, "rope_type"},
      {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}, "full_attention"},
      {"rope_scaling",
       {{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}},
       "partial_rotary_factor"},
      {"rope_scaling",
       {{"rope_type", "longrope"},
        {"factor", 2.0},
        {"short_factor", {1.0}},
        {"long_factor", {1.0}}},
       "short_factor"},
      {"tie_word_embeddings", 3, "tie_word_embeddings"},
      {"attention_bias", "yes", "attention_bias"},
      {"eos_token_id", "two", "eos_token_id"},
      {"quantization_config", {{"quant_method", "magicbits"}}, "quantization_config"},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"config_groups", {{"group_0", Json::object()}}},
        {"kv_cache_scheme", Json::object()}},
       "compressed-tensors"},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"format", "dense"},
        {"transform_config", {{"config_groups", {{"R3", Json::object()}}}}}},
       "transform_config"},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"sparsity_config", {{"format", "sparse-24-bitmask"}}}},
       "sparse-24-bitmask"},
  };
  for (const BadField& c : cases) {
    Json config = test::tiny_config();
    config[c.key] = c.value;
    std::string message = config_refusal(config.dump());
    EXPECT_NE(message.find(c.mention), std::string::npos)
        << c.key << " = " << c.value.dump() << ": " << message;
    EXPECT_NE(message.find("config.json"), std::string::npos) << message;
  }
  EXPECT_EQ(config_refusal(test::tiny_config().dump()), "accepted");
}

// mlx-lm multiplies weights by what the config says.
TEST(Config, MultipliersOfMlxAreRefused) {
  const test::TempDir dir;
  const std::filesystem::path model = test::source_dir() / "tests/data/models/falcon_h1";
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"})
    if (std::filesystem::exists(model / name))
      std::filesystem::copy_file(model / name, dir.path() / name);
  EXPECT_NO_THROW(read_model(*open_model({dir.path()})));
  Json config = parse_json(test::read_file(model / "config.json"), "config.json");
  config["quantization"] = {{"bits", 4}, {"group_size", 32}};
  test::write_file(dir / "config.json", config.dump());
  try {
    read_model(*open_model({dir.path()}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ssm_multipliers"), std::string::npos) << e.what();
  }
}

TEST(Config, TheTableOfLayersLacksFewRows) {
  Json config = parse_json(
      test::read_file(test::source_dir() / "tests/data/models/gemma3n/config.json"), "config.json");
  const auto answer = [&](int64_t tokens, int64_t rows) {
    config["vocab_size"] = tokens;
    config["vocab_size_per_layer_input"] = rows;
    return config_refusal(config.dump());
  };
  EXPECT_EQ(answer(262400, 262144), "accepted");
  EXPECT_THAT(answer(1 << 24, 96), HasSubstr("vocab_size_per_layer_input is 96"));
}

TEST(Config, AnIndexerChoosesFewPositions) {
  for (const char* name : {"deepseek_v32", "deepseek_v4", "glm_moe_dsa"}) {
    const auto file = test::source_dir() / "tests/data/models" / name / "config.json";
    Json config = parse_json(test::read_file(file), "config.json");
    config["index_topk"] = 1 << 24;
    EXPECT_THAT(config_refusal(config.dump()), HasSubstr("index_topk is 16777216"));
  }
}

TEST(Config, MoreLayersOrExpertsThanTensorsHoldAreRefused) {
  const std::filesystem::path model = test::source_dir() / "tests/data/models/mixtral";
  const io::CheckpointIndex index = io::open_checkpoint(model);
  Json config = parse_json(test::read_file(model / "config.json"), "config.json");
  const auto answer = [&](int64_t layers, int64_t experts) -> std::string {
    config["num_hidden_layers"] = layers;
    config["num_local_experts"] = experts;
    const test::TempDir dir;
    test::write_file(dir / "config.json", config.dump());
    try {
      build_model(dir.path(), Rank{}, &index);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(answer(2, 4), "accepted");
  EXPECT_EQ(answer(3, 5), "accepted");  // what is missing is named when it is planned
  EXPECT_THAT(answer(4096, 4), HasSubstr("num_hidden_layers is 4096"));
  EXPECT_THAT(answer(20, 1000), HasSubstr("with 20000 experts in all"));
}

TEST(Config, ACheckpointOfWhichOnlyTheKvCacheIsQuantizedIsPlain) {
  Json config = test::tiny_config();
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"config_groups", Json::object()},
      {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}}};
  EXPECT_EQ(config_refusal(config.dump()), "accepted");
  config["quantization_config"]["kv_cache_scheme"] = nullptr;
  EXPECT_NE(config_refusal(config.dump()), "accepted");
}

TEST(Config, WhatIsNoObjectIsRefused) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  for (std::string bad : {std::string("[]"), std::string(), std::string("{"), deep,
                          std::string("{\"hidden_size\": 1e400}")}) {
    EXPECT_NE(config_refusal(bad).find("config.json"), std::string::npos) << bad.substr(0, 40);
  }
}

// Python writes them so; they are passed over in a field that is not read.
TEST(Config, NumbersThatAreNotFinite) {
  std::string text = test::tiny_config().dump();
  text.pop_back();
  EXPECT_EQ(config_refusal(text + R"(, "time_step_limit": [0.0, Infinity], "x": NaN})"),
            "accepted");
  for (const char* key : {"hidden_size", "rms_norm_eps", "rope_theta", "eos_token_id", "dtype",
                          "hidden_act", "tie_word_embeddings", "head_dim", "architectures",
                          "max_position_embeddings", "rope_scaling", "attention_bias"}) {
    for (const char* value : {"NaN", "Infinity", "-Infinity"})
      EXPECT_THAT(config_refusal(text + fmt::format(R"(, "{}": {}}})", key, value)),
                  HasSubstr(key));
  }
}

TEST(Config, MissingDirectoryAndFile) {
  test::TempDir dir;
  EXPECT_THROW(build_model(dir / "nowhere", Rank{}), Error);
  EXPECT_THROW(build_model(dir.path(), Rank{}), Error);
}

TEST(Config, TokensThatEndATextAreThoseOfBothFiles) {
  test::TempDir dir;
  auto eos = [&] { return build_model(dir.path(), Rank{}).files.eos_ids; };
  auto generation = [&](const char* text) {
    test::write_file(dir / "generation_config.json", text);
    return eos();
  };
  Json config = test::tiny_config();
  test::write_file(dir / "config.json", config.dump());
  EXPECT_THAT(eos(), ElementsAre(2));
  config["eos_token_id"] = {2, -1};  // some configs have -1 for none
  test::write_file(dir / "config.json", config.dump());
  EXPECT_THAT(eos(), ElementsAre(2));
  EXPECT_THAT(generation(R"({"eos_token_id": [5, 6], "temperature": Infinity})"),
              ElementsAre(2, 5, 6));
  EXPECT_THAT(generation(R"({"eos_token_id": [6, 2, 6]})"), ElementsAre(2, 6));
  EXPECT_THAT(generation(R"({"eos_token_id": null})"), ElementsAre(2));
  config.erase("eos_token_id");
  test::write_file(dir / "config.json", config.dump());
  EXPECT_THAT(generation(R"({"eos_token_id": 7})"), ElementsAre(7));
}

TEST(Config, DtypeIsPreferredToTorchDtype) {
  test::TempDir dir;
  auto dtype = [&](const char* name, const char* value) {
    Json config = test::tiny_config();  // its torch_dtype is bfloat16
    config[name] = value == nullptr ? Json(nullptr) : Json(value);
    test::write_file(dir / "config.json", config.dump());
    return build_model(dir.path(), Rank{}).files.dtype;
  };
  EXPECT_EQ(dtype("dtype", "float32"), DType::f32);
  EXPECT_EQ(dtype("dtype", nullptr), DType::bf16);
  EXPECT_EQ(dtype("torch_dtype", "double"), DType::f64);
  EXPECT_EQ(dtype("torch_dtype", nullptr), std::nullopt);
}

TEST(Config, RankCountsThatDoNotDivideTheHeadsAreRefused) {
  test::TempDir dir;
  Json config = test::tiny_config();  // 6 heads, 2 KV heads
  config["vocab_size"] = 160;
  test::write_file(dir / "config.json", config.dump());
  for (int size = 1; size <= 6; ++size) EXPECT_NO_THROW(build_model(dir.path(), {0, size})) << size;
  for (int size : {7, 8}) EXPECT_THROW(build_model(dir.path(), {0, size}), Error) << size;
}

}  // namespace
}  // namespace sluice
