// The one of several GGUF files that a tag means.
#include "src/hub/gguf_choice.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const std::vector<std::string> kFiles{
    "README.md",
    "Tiny-1.5B-IQ2_XXS.gguf",
    "Tiny-1.5B-Q4_K_M.gguf",
    "Tiny-1.5B-UD-Q4_K_XL.gguf",
    "BF16/Tiny-1.5B-BF16-00001-of-00002.gguf",
    "BF16/Tiny-1.5B-BF16-00002-of-00002.gguf",
    "Tiny-1.5B-MXFP4.gguf",
    "Tiny-1.5B-NVFP4.gguf",
    "mmproj-F16.gguf",
    "Tiny.imatrix.gguf",
};

TEST(GgufChoice, ModelsAreListedOnceWithWhatTellsThemApart) {
  std::vector<std::string> tags;
  for (const GgufChoice& each : gguf_choices(kFiles)) tags.push_back(each.tag);
  EXPECT_EQ(tags, (std::vector<std::string>{"IQ2_XXS", "Q4_K_M", "UD-Q4_K_XL", "BF16", "MXFP4",
                                            "NVFP4"}));
}

TEST(GgufChoice, ATagANameOrTheUsualTypeChooses) {
  const std::vector<GgufChoice> choices = gguf_choices(kFiles);
  auto chosen = [&](std::string_view tag) {
    const auto choice = choose_gguf(choices, tag);
    return choice ? choice->file : std::string();
  };
  EXPECT_EQ(chosen(""), "Tiny-1.5B-Q4_K_M.gguf");
  EXPECT_EQ(chosen("q4_k_m"), "Tiny-1.5B-Q4_K_M.gguf");
  EXPECT_EQ(chosen("ud-q4_k_xl"), "Tiny-1.5B-UD-Q4_K_XL.gguf");
  EXPECT_EQ(chosen("bf16"), "BF16/Tiny-1.5B-BF16-00001-of-00002.gguf");
  EXPECT_EQ(chosen("Tiny-1.5B-MXFP4.gguf"), "Tiny-1.5B-MXFP4.gguf");
  EXPECT_EQ(chosen("Q4"), "");
  EXPECT_EQ(chosen("mmproj-F16.gguf"), "");
  const std::vector<std::string> one{"whatever.gguf"};
  EXPECT_EQ(choose_gguf(gguf_choices(one), "")->tag, "whatever");
  EXPECT_FALSE(choose_gguf({}, ""));
}

}  // namespace
}  // namespace sluice
