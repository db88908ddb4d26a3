#include "src/plan/place_rules.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr const char* kPath = "model.layers.12.mlp.down_proj.weight";

TEST(PlaceRules, TheFirstOneThatMatchesCounts) {
  std::vector<PlaceRule> rules = parse_place_rules("layers.12.mlp=host,layers.*=disk");
  EXPECT_EQ(wanted_tier(rules, kPath), Tier::host);
  EXPECT_EQ(wanted_tier(rules, "model.layers.12.self_attn.o_proj.weight"), Tier::disk);
  EXPECT_EQ(wanted_tier(rules, "lm_head.weight"), std::nullopt);
  EXPECT_EQ(wanted_tier(parse_place_rules("mlp=device"), kPath), Tier::device);
}

TEST(PlaceRules, CpuIsHostMemoryWhoseWeightsTheCpuMultiplies) {
  const auto rules = parse_place_rules("*.experts.*=cpu,layers.12=host");
  const PlaceRule* rule = first_rule(rules, "model.layers.3.mlp.experts.7.down_proj.weight");
  ASSERT_NE(rule, nullptr);
  EXPECT_TRUE(rule->by_cpu && rule->tier == Tier::host);
  EXPECT_FALSE(first_rule(rules, kPath)->by_cpu);
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
