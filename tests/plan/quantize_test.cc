// Rules of --quantization: how they are read, which weight gets which, and what is none.
#include "src/plan/quantize.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/plan/compile.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

TEST(Quantization, IsRulesAndTheSchemeOfTheRest) {
  QuantizeRequest request = parse_quantization("lm_head=none,*.down_proj=int8,fp8");
  ASSERT_EQ(request.rules.size(), 2u);
  EXPECT_EQ(request.rules[1].pattern.text(), "*.down_proj");
  EXPECT_EQ(request.rules[1].scheme.name, "int8");
  EXPECT_EQ(request.scheme.name, "fp8_per_channel");
  EXPECT_EQ(request.name(), "lm_head=none,*.down_proj=int8,fp8_per_channel");
  EXPECT_EQ(parse_quantization("int8").name(), "int8");
  EXPECT_EQ(parse_quantization("*.up_proj=int8").scheme.name, "none");
}

TEST(Quantization, WhatIsNoRuleIsAWrongOption) {
  for (const char* text : {"", "fp9", "int8,", "int8,fp8", "fp8,*.q_proj=int8", "=int8",
                           "*.q_proj=", "*.q_proj=fp9", ",fp8"}) {
    try {
      parse_quantization(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << text;
    }
  }
}

class Rules : public testing::Test {
 protected:
  Rules() {
    config_["num_hidden_layers"] = 1;
    test::Random random("rules");
    test::write_checkpoint(dir_.path(), config_, test::tiny_tensors(config_, random));
  }
  // "path scheme's codes and scales", of each matrix that has scales.
  std::map<std::string, std::string> quantized(const std::string& text) {
    io::CheckpointIndex index = io::open_checkpoint(dir_.path());
    Model model = build_model(dir_.path(), Rank{}, &index);
    ReadPlan plan = compile(model, index, parse_quantization(text), {1 << 16, 1 << 18});
    std::map<std::string, std::string> found;
    for (const ParamPlan& p : plan.params) {
      if (p.format.scales == ScaleKind::none) continue;
      found[p.param->path] = p.format.dtype == DType::i8               ? "int8"
                             : p.format.scales == ScaleKind::per_block ? "block"
                                                                       : "fp8";
    }
    return found;
  }
  Json config_ = test::tiny_config();
  test::TempDir dir_;
};

TEST_F(Rules, TheFirstThatFitsCounts) {
  using Found = std::map<std::string, std::string>;
  const std::string a = "model.layers.0.self_attn.", m = "model.layers.0.mlp.";
  EXPECT_EQ(quantized("fp8"), (Found{{a + "qkv_proj.weight", "fp8"},
                                     {a + "o_proj.weight", "fp8"},
                                     {m + "gate_up_proj.weight", "fp8"},
                                     {m + "down_proj.weight", "fp8"}}));
  EXPECT_EQ(
      quantized("*.q_proj=int8,*.k_proj=fp8_per_block,*.o_proj=none,*.down_proj=int8,*_proj=fp8"),
      (Found{{a + "qkv_proj.q_proj.weight", "int8"},
             {a + "qkv_proj.k_proj.weight", "block"},
             {a + "qkv_proj.v_proj.weight", "fp8"},
             {m + "gate_up_proj.weight", "fp8"},
             {m + "down_proj.weight", "int8"}}));
  // Parts that are alike are one, under the name that they have together, too.
  EXPECT_EQ(quantized("*.qkv_proj=int8"), (Found{{a + "qkv_proj.weight", "int8"}}));
  EXPECT_EQ(quantized("lm_head=int8,*.embed_tokens=fp8"),
            (Found{{"lm_head.weight", "int8"}, {"model.embed_tokens.weight", "fp8"}}));
}

TEST_F(Rules, OneThatFitsNothingIsAWrongOption) {
  for (const char* text : {"*.qproj=int8,fp8", "model.norm=fp8"}) {
    try {
      quantized(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(e.what()).find("no matrix of the model"), std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace sluice
