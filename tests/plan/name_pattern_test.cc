// Patterns of names: runs of parts, ranges, stars and regular expressions.
#include "src/plan/name_pattern.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kName = "model.layers.12.mlp.down_proj.weight";

bool fits(const std::string& pattern, std::string_view name = kName) {
  return NamePattern::parse(pattern, "test").matches(name);
}

TEST(NamePattern, IsARunOfParts) {
  for (const char* pattern :
       {"layers.12", "layers.0-12", "layers.*.mlp", "mlp", "*.mlp", "model", "down_proj.weight",
        "*", "*_proj", "d*n_proj", "model.*.weight", "layers.1*", "*.*", "model.layers.12-12.*"}) {
    EXPECT_TRUE(fits(pattern)) << pattern;
  }
  for (const char* pattern :
       {"layers.1", "layers.13-20", "layers.mlp", "layer", "weight.x", "layers.a-b", "layers.12-",
        "*.model", "weight.*", "proj", "layers.*.*.*.*.*"}) {
    EXPECT_FALSE(fits(pattern)) << pattern;
  }
  EXPECT_TRUE(fits("lm_head", "lm_head"));
  EXPECT_FALSE(fits("lm_head", "lm_head2"));
  // A part may itself have a dash.
  EXPECT_TRUE(fits("a-b", "x.a-b.y"));
}

TEST(NamePattern, MayBeARegularExpression) {
  EXPECT_TRUE(fits("re:.*down_proj"));
  EXPECT_TRUE(fits("re:model\\.layers\\.(1[0-9]|2)\\."));
  EXPECT_FALSE(fits("re:down_proj")) << "it begins where the name does";
  EXPECT_FALSE(fits("re:.*up_proj"));
  EXPECT_TRUE(fits("re:model"));
  EXPECT_TRUE(fits("re:.*proj$", "\xff.a_proj")) << "a GGUF file's names are any bytes";
}

TEST(NamePattern, WhatIsNoneIsAWrongOption) {
  for (const char* text :
       {"", ".", "layers.", ".mlp", "a..b", "re:(", "re:[", "re:*a", "re:\xed\x80"}) {
    try {
      NamePattern::parse(text, "--place x");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage) << text;
      EXPECT_TRUE(std::string(e.what()).starts_with("--place x")) << e.what();
    }
  }
}

TEST(NamePattern, StarsAreNotExponential) {
  std::string stars = "*", name = "a";
  for (int i = 0; i < 100; ++i) stars += ".*a*a*a", name += ".aaaaaaaaaaaaaaaaaaaa";
  EXPECT_FALSE(fits(stars + ".b", name));
}

TEST(Matches, StarsStandForAnything) {
  EXPECT_TRUE(matches("*.inv_freq", "model.layers.0.inv_freq"));
  EXPECT_TRUE(matches("mtp.*", "mtp."));
  EXPECT_TRUE(matches("*.mtp.*", "a.mtp.b.c"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*b", "abbb"));
  EXPECT_FALSE(matches("*.inv_freq", "model.inv_freq.weight"));
  EXPECT_FALSE(matches("lm_head.weight", "lm_head.weigh"));
  EXPECT_FALSE(matches("a*b*b", "ab"));
  // Not exponential: each star may be anywhere.
  EXPECT_FALSE(matches(std::string(100, 'x').replace(50, 1, "*") + "*x*x*x*x*x*x*x*y",
                       std::string(4000, 'x')));
}

}  // namespace
}  // namespace sluice
