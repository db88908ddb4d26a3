#include "src/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

RopeConfig parse(const char* text, int64_t dim, int64_t positions) {
  Json json = Json::parse(text);
  return parse_rope(JsonFields(json, "config.json"), {dim, positions});
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-6 * expected[i]) << i;
}

// Goldens: transformers 5.23's rope functions on these configurations, dim 8.
TEST(Rope, FrequenciesMatchTransformers) {
  expect_near(rope_frequencies(parse(R"({"rope_theta": 10000.0})", 8, 64), 10),
              {1.0, 0.1, 0.01, 0.001});
  expect_near(
      rope_frequencies(parse(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})", 8, 64), 10),
      {0.25, 0.025, 0.0025, 0.00025});
  expect_near(
      rope_frequencies(
          parse(
              R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})",
              8, 512),
          10),
      {1, 0.00470075384, 0.000176776681, 6.64786967e-06});
  expect_near(
      rope_frequencies(
          parse(
              R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
                                        "beta_fast": 32, "beta_slow": 1}})",
              8, 256),
          10),
      {1, 0.0125000002, 0.00124999997, 0.000125000006});
  RopeConfig dynamic = parse(R"({"rope_scaling": {"type": "dynamic", "factor": 4.0}})", 8, 32);
  expect_near(rope_frequencies(dynamic, 32), {1.0, 0.1, 0.01, 0.001});
  expect_near(rope_frequencies(dynamic, 70), {1, 0.0558184013, 0.00311569381, 0.000173913038});
}

// The field that counts is that of transformers 5.24.
TEST(Rope, OfTwoFieldsOneCounts) {
  struct RopeCase {
    const char* config;
    RopeKind kind;
    double theta;
    int64_t original;
    bool warns = false;
  };
  for (const RopeCase& c : {
           RopeCase{R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0},
                    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})",
                    RopeKind::linear, 10000, 64, true},
           RopeCase{R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 500.0}})",
                    RopeKind::plain, 500, 64},
           RopeCase{R"({"rope_scaling": null, "rope_parameters": {"type": "linear", "factor": 2}})",
                    RopeKind::linear, 10000, 64},
           RopeCase{
               R"({"rope_scaling": {"rope_theta": 500}, "rope_parameters": {"rope_theta": 500}})",
               RopeKind::plain, 500, 64},
           RopeCase{R"({"rope_theta": 7.0, "rope_parameters": {"rope_theta": 500.0}})",
                    RopeKind::plain, 500, 64, true},
           RopeCase{
               R"({"rope_theta": 7.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})",
               RopeKind::linear, 7, 64},
           RopeCase{
               R"({"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2.0}})",
               RopeKind::linear, 10000, 64, true},
           RopeCase{
               R"({"original_max_position_embeddings": 16, "rope_scaling": {"rope_type": "yarn",
                    "factor": 4.0, "original_max_position_embeddings": 32}})",
               RopeKind::yarn, 10000, 16, true},
           RopeCase{R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                    "original_max_position_embeddings": 32, "attention_factor": null}})",
                    RopeKind::yarn, 10000, 32},
           RopeCase{R"({"partial_rotary_factor": 0.5})", RopeKind::plain, 10000, 64, true},
       }) {
    SCOPED_TRACE(c.config);
    testing::internal::CaptureStderr();
    RopeConfig rope = parse(c.config, 8, 64);
    EXPECT_EQ(rope.kind, c.kind);
    EXPECT_EQ(rope.theta, c.theta);
    EXPECT_EQ(rope.original_positions, c.original);
    EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), !c.warns);
  }
}

// The length outside of the ropes is not that of one kind of layers.
TEST(Rope, DividedRopesHaveTheirOwnOriginalLengths) {
  const Json config = Json::parse(R"({"original_max_position_embeddings": 16, "rope_parameters": {
      "full_attention": {"rope_type": "yarn", "factor": 4.0},
      "sliding_attention": {"rope_type": "yarn", "factor": 4.0,
                            "original_max_position_embeddings": 32}}})");
  const JsonFields fields(config, "config.json");
  RopeModel model{.head_dim = 8, .max_positions = 64, .layers = "full_attention"};
  EXPECT_EQ(parse_rope(fields, model).original_positions, 64);
  model.layers = "sliding_attention";
  EXPECT_EQ(parse_rope(fields, model).original_positions, 32);
}

TEST(Rope, ProportionalPartsMayBeOutsideOfTheRope) {
  Json config = Json::parse(R"({"rope_parameters": {"rope_type": "proportional"}})");
  auto turning = [&](const RopeModel& model) {
    return parse_rope(JsonFields(config, "config.json"), model).turning;
  };
  const RopeModel whole{.head_dim = 16, .max_positions = 64};
  const RopeModel quarter{.head_dim = 16,
                          .max_positions = 64,
                          .part_key = "partial_rotary_factor",
                          .default_part = 0.25};
  EXPECT_EQ(turning(whole), 8);
  EXPECT_EQ(turning(quarter), 2);
  config["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(turning(whole), 6);
  EXPECT_EQ(turning(quarter), 6);
  config["rope_parameters"]["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(turning(quarter), 4);
}

TEST(Rope, YarnScalesCosAndSin) {
  RopeConfig yarn = parse(R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}})", 8, 256);
  EXPECT_NEAR(yarn.attention_factor, 0.1 * std::log(8.0) + 1, 1e-12);
}

TEST(Rope, RefusesWhatIsNotFinite) {
  for (const char* config : {
           R"({"rope_theta": 1e-300})",
           R"({"rope_scaling": {"rope_type": "yarn", "factor": 1e-300}})",
           R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e39}})",
           // A zero to divide by: 0.1 * mscale * ln(factor) + 1, with ln(factor) = 1.
           R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.718281828459045, "mscale": 1,
               "mscale_all_dim": -10}})",
           // The logarithm of theta is zero, and so is that of the ratio.
           R"({"rope_theta": 1, "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
               "original_max_position_embeddings": 1, "beta_fast": 0.15915494309189535}})",
           R"({"rope_scaling": {"rope_type": "linear", "factor": 1e-39}})",
       }) {
    try {
      parse(config, 8, 64);
      ADD_FAILURE() << config;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_STREQ(e.what(), "config.json: the rotary embeddings that it describes are not finite");
    }
  }
}

TEST(Rope, AWindowHasTheAnglesOfItsFirstPositionAndReversedOnesUndoThem) {
  RopeConfig rope = parse("{}", 4, 64), window = rope, reversed = rope;
  window.window = 4;
  reversed.reversed = true;
  std::vector<float> memory(6 * 2 * 2);
  const auto table = [&](const RopeConfig& of, int64_t first) {
    Tensor all{reinterpret_cast<std::byte*>(memory.data()), DType::f32, 4, 2, 2};
    rope_table(of, {first, first + 2}, all.rows_from(0, 2), all.rows_from(2, 2));
    return std::vector<float>(memory.begin(), memory.begin() + 8);
  };
  const std::vector<float> at_eight = table(rope, 8), at_ten = table(rope, 10);
  std::vector<float> expected{at_eight[0], at_eight[1], at_eight[0], at_eight[1],
                              at_eight[4], at_eight[5], at_eight[4], at_eight[5]};
  EXPECT_EQ(table(window, 10), expected);
  expected = at_ten;
  for (size_t i = 4; i < 8; ++i) expected[i] = -expected[i];
  EXPECT_EQ(table(reversed, 10), expected);
}

TEST(Rope, TableRowsDependOnPositionOnly) {
  RopeConfig rope = parse("{}", 6, 64);
  std::vector<float> whole_cos(30), whole_sin(30), part_cos(6), part_sin(6);
  auto view = [](std::vector<float>& v, int64_t rows) {
    return Tensor{reinterpret_cast<std::byte*>(v.data()), DType::f32, rows, 3, 3};
  };
  rope_table(rope, {0, 10}, view(whole_cos, 10), view(whole_sin, 10));
  rope_table(rope, {7, 10}, view(part_cos, 2), view(part_sin, 2));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(part_cos[i], whole_cos[21 + i]);
    EXPECT_EQ(part_sin[i], whole_sin[21 + i]);
  }
  EXPECT_EQ(whole_cos[0], 1.0f);
  EXPECT_EQ(whole_sin[0], 0.0f);
}

}  // namespace
}  // namespace sluice
