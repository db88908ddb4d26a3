#include "src/plan/place_rules.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr const char* kPath = "model.layers.12.mlp.down_proj.weight";

TEST(PlaceRules, MatchRunsOfNames) {
  auto matches = [](const std::string& pattern) {
    return parse_place_rules(pattern + "=disk").front().matches(kPath);
  };
  for (const char* pattern : {"layers.12", "layers.0-12", "layers.*.mlp", "mlp", "*.mlp", "model",
                              "down_proj.weight", "*"}) {
    EXPECT_TRUE(matches(pattern)) << pattern;
  }
  for (const char* pattern : {"layers.1", "layers.13-20", "layers.mlp", "layer", "weight.x",
                              "layers.a-b", "layers.12-"}) {
    EXPECT_FALSE(matches(pattern)) << pattern;
  }
}

TEST(PlaceRules, TheLastOneThatMatchesCounts) {
  std::vector<PlaceRule> rules = parse_place_rules("layers.*=disk,layers.12.mlp=host");
  EXPECT_EQ(wanted_tier(rules, kPath), Tier::host);
  EXPECT_EQ(wanted_tier(rules, "model.layers.12.self_attn.o_proj.weight"), Tier::disk);
  EXPECT_EQ(wanted_tier(rules, "lm_head.weight"), std::nullopt);
  EXPECT_EQ(wanted_tier(parse_place_rules("mlp=device"), kPath), Tier::device);
}

TEST(PlaceRules, CpuIsHostMemoryWhoseWeightsTheCpuMultiplies) {
  const auto rules = parse_place_rules("*.experts.*=cpu,layers.12=host");
  const PlaceRule* rule = last_rule(rules, "model.layers.3.mlp.experts.7.down_proj.weight");
  ASSERT_NE(rule, nullptr);
  EXPECT_TRUE(rule->by_cpu && rule->tier == Tier::host);
  EXPECT_FALSE(last_rule(rules, kPath)->by_cpu);
}

TEST(PlaceRules, RefusesWhatIsNone) {
  for (const char* text :
       {"", "layers", "=disk", "layers.=disk", "layers=", "layers=gpu", "a=disk,,b=host"}) {
    try {
      parse_place_rules(text);
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << text;
    }
  }
}

}  // namespace
}  // namespace sluice
