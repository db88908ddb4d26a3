// Contradictions between GPTQ's config.json and its zeros.
#include "src/plan/gptq.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/support/checkpoint.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// Packed codes of one layer's zeros: 64 of them, all of one value but the last.
std::string packed(int bits, int value, int last) {
  std::string bytes(static_cast<size_t>(64 * bits / 8), '\0');
  for (int i = 0; i < 64; ++i) {
    for (int b = 0; b < bits; ++b) {
      const int at = i * bits + b, bit = (i == 63 ? last : value) >> b & 1;
      bytes[static_cast<size_t>(at / 8)] =
          static_cast<char>(bytes[static_cast<size_t>(at / 8)] | bit << at % 8);
    }
  }
  return bytes;
}

struct Settled {
  std::optional<int> base;  // added to stored zeros
  std::string said;
};
Settled settled(const Json& quantization, const std::vector<std::string>& zeros, int bits) {
  Json config = test::tiny_config();
  config["quantization_config"] = quantization;
  config["quantization_config"]["quant_method"] = "gptq";
  config["quantization_config"]["bits"] = bits;
  std::vector<test::TinyTensor> tensors{{"model.norm.weight", {2}, "BF16", "nnnn"}};
  for (const std::string& bytes : zeros)
    tensors.push_back({fmt::format("layer.{}.qzeros", tensors.size()), {2, bits}, "I32", bytes});
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, tensors, 1);
  testing::internal::CaptureStderr();
  settle_gptq_zeros(config, io::open_checkpoint(dir.path()));
  const std::string said = testing::internal::GetCapturedStderr();
  return {gptq_config(config)->zero_base, said};
}

TEST(Gptq, ZerosOfASymmetricOneTellHowTheyAreStored) {
  const Json v1{{"sym", true}, {"checkpoint_format", "gptq"}};
  const Json v2{{"sym", true}, {"checkpoint_format", "gptq_v2"}};
  for (int bits : {2, 3, 4, 8}) {
    SCOPED_TRACE(bits);
    const int middle = 1 << (bits - 1);
    const std::string less_one = packed(bits, middle - 1, middle - 1);
    const std::string itself = packed(bits, middle, middle);
    for (const auto& [config, zeros, base, warns] :
         std::vector<std::tuple<Json, std::string, int, bool>>{
             {v1, less_one, 1, false},
             {v1, itself, 0, true},
             {v2, itself, 0, false},
             {v2, less_one, 1, true},
             {{{"sym", true}}, less_one, 1, false},
             {{{"sym", true}}, itself, 0, false},  // nothing is contradicted
             {Json::object(), itself, 0, false},
             {{{"checkpoint_format", "gptq"}}, itself, 0, true}}) {
      const Settled found = settled(config, {zeros, zeros}, bits);
      EXPECT_EQ(found.base, base) << config;
      EXPECT_EQ(found.said.empty(), !warns) << found.said;
    }
    const std::string said = settled(v1, {itself}, bits).said;
    EXPECT_THAT(said, HasSubstr(fmt::format(
                          "checkpoint_format is gptq, but all zeros are {}, as gptq_v2", middle)));
    EXPECT_EQ(std::ranges::count(said, '\n'), 1);
  }
}

// The format's name decides if the zeros do not.
TEST(Gptq, OtherZerosAreReadAsTheFormatSays) {
  const std::string seven = packed(4, 7, 7), eight = packed(4, 8, 8), nearly = packed(4, 8, 9);
  for (const char* format : {"gptq", "gptq_v2"}) {
    const int base = std::string(format) == "gptq" ? 1 : 0;
    const Json symmetric{{"sym", true}, {"checkpoint_format", format}};
    for (const std::vector<std::string>& zeros :
         {std::vector{nearly}, {seven, eight}, {eight, nearly}, {packed(4, 0, 0)}}) {
      const Settled found = settled(symmetric, zeros, 4);
      EXPECT_EQ(found.base, base);
      EXPECT_THAT(found.said, HasSubstr("sym is true, but the zeros are not all 7 or all 8"));
    }
    const Json other{{"sym", false}, {"checkpoint_format", format}};
    for (const std::vector<std::string>& zeros : {std::vector{seven}, {eight}, {nearly}}) {
      EXPECT_EQ(settled(other, zeros, 4).base, base);
      EXPECT_EQ(settled(other, zeros, 4).said, "");
    }
    EXPECT_EQ(settled({{"checkpoint_format", format}}, {nearly}, 4).said, "");
    EXPECT_EQ(settled(symmetric, {}, 4).said, "");
  }
}

TEST(Gptq, SettingsOfSingleModules) {
  Json config{{"quantization_config",
               {{"quant_method", "gptq"},
                {"bits", 4},
                {"group_size", 128},
                {"dynamic",
                 {{"-:.*down_proj.*", Json::object()},
                  {"+:.*q_proj.*", {{"bits", 8}}},
                  {".*k_proj.*", {{"group_size", 32}, {"desc_act", true}}}}}}}};
  const GptqConfig found = *gptq_config(config);
  EXPECT_EQ(found.bits, 4);
  ASSERT_EQ(found.others.size(), 2u);
  const size_t q = found.others[0].bits == 8 ? 0 : 1;
  EXPECT_EQ(found.others[q].group_size, 128);
  EXPECT_EQ(found.others[1 - q].bits, 4);
  EXPECT_EQ(found.others[1 - q].group_size, 32);
  EXPECT_TRUE(found.others[1 - q].desc_act);
  Json& dynamic = config["quantization_config"]["dynamic"];
  for (const auto& [settings, fault] : {std::pair{Json{{"bits", 5}}, "bits are 5"},
                                        {Json{{"group_size", 24}}, "group_size is 24"},
                                        {Json(4), "must be an object"}}) {
    dynamic = {{"+:x", settings}};
    try {
      gptq_config(config);
      ADD_FAILURE() << settings;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("dynamic: +:x"), HasSubstr(fault)));
    }
  }
}

}  // namespace
}  // namespace sluice
