// GPTQ's config.json: contradictions to the zeros, and settings of single modules.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/formats/formats.h"
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
  int base = 0;  // added to stored zeros
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
  settle_stored_formats(config, io::open_checkpoint(dir.path()));
  const std::string said = testing::internal::GetCapturedStderr();
  return {config["quantization_config"].value("checkpoint_format", "gptq") == "gptq" ? 1 : 0, said};
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

constexpr int64_t kOutputs = 64, kInputs = 256;
struct Module {
  const char* name;
  int bits;
  int64_t group;
  bool has_order = false;
};
constexpr Module kModules[] = {{"q_proj", 8, 128}, {"k_proj", 4, 32, true}, {"v_proj", 4, 128}};

std::vector<test::TinyTensor> modules() {
  std::vector<test::TinyTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, const char* dtype,
                       int64_t bytes) {
    for (int64_t size : shape) bytes *= size;
    tensors.push_back({name, shape, dtype, std::string(static_cast<size_t>(bytes), '\0')});
  };
  for (const Module& m : kModules) {
    const std::string name = m.name;
    add(name + ".qweight", {kInputs * m.bits / 32, kOutputs}, "I32", 4);
    add(name + ".qzeros", {kInputs / m.group, kOutputs * m.bits / 32}, "I32", 4);
    add(name + ".scales", {kInputs / m.group, kOutputs}, "F16", 2);
    if (m.has_order) add(name + ".g_idx", {kInputs}, "I32", 4);
  }
  return tensors;
}

std::shared_ptr<const StoredMatrix> described(StoredFormats& formats, const Module& m) {
  Piece piece;
  piece.source = std::string(m.name) + ".weight";
  piece.rows = kOutputs;
  piece.cols = kInputs;
  std::vector<std::string> faults;
  const auto matrix = formats.describe(
      formats.find(piece), {piece, kOutputs, {kOutputs, kInputs}, "config.json"}, faults);
  EXPECT_TRUE(faults.empty());
  return matrix;
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
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, modules(), 1);
  const io::CheckpointIndex index = io::open_checkpoint(dir.path());
  StoredFormats formats(config, index);
  for (const Module& m : kModules) {
    const std::shared_ptr<const StoredMatrix> matrix = described(formats, m);
    ASSERT_NE(matrix, nullptr) << m.name;
    EXPECT_EQ(matrix->kept->bits, m.bits) << m.name;
    EXPECT_EQ(matrix->kept->scale_cols, m.group) << m.name;
    EXPECT_EQ(matrix->groups != nullptr, m.has_order) << m.name;
    EXPECT_EQ(matrix->planes.size(), 3u);
  }
  Json& dynamic = config["quantization_config"]["dynamic"];
  for (const auto& [settings, fault] : {std::pair{Json{{"bits", 5}}, "bits are 5"},
                                        {Json{{"group_size", 24}}, "group_size is 24"},
                                        {Json(4), "must be an object"}}) {
    dynamic = {{"+:x", settings}};
    try {
      StoredFormats(config, index);
      ADD_FAILURE() << settings;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("dynamic: +:x"), HasSubstr(fault)));
    }
  }
}

// The order of inputs in memory, where they have one of their own.
std::vector<int32_t> order_of(const Json& quantization, const std::vector<int32_t>& groups) {
  const Json config{{"quantization_config", quantization}};
  std::vector<test::TinyTensor> tensors = modules();
  const auto* bytes = reinterpret_cast<const char*>(groups.data());
  tensors.push_back({"q_proj.g_idx", {kInputs}, "I32", std::string(bytes, groups.size() * 4)});
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, tensors, 1);
  const io::CheckpointIndex index = io::open_checkpoint(dir.path());
  StoredFormats formats(config, index);
  const auto matrix = described(formats, kModules[0]);
  formats.finish();
  return matrix->order;
}

TEST(Gptq, AnOrderThatConfigJsonDoesNotSayCounts) {
  const Json unsaid{{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 128}};
  Json said = unsaid;
  said["desc_act"] = true;
  std::vector<int32_t> groups(kInputs);
  for (int64_t i = 0; i < kInputs; ++i)
    groups[static_cast<size_t>(i)] = static_cast<int32_t>(i / 128);
  for (const Json& config : {unsaid, said}) EXPECT_TRUE(order_of(config, groups).empty());
  std::ranges::reverse(groups);
  for (const Json& config : {unsaid, said}) EXPECT_EQ(order_of(config, groups).front(), 128);
  // Old files have zeros instead.
  const std::vector<int32_t> zeros(kInputs);
  EXPECT_TRUE(order_of(unsaid, zeros).empty());
  EXPECT_THROW(order_of(said, zeros), Error);
}

TEST(Gptq, TheFormatMayStandUnderItsOtherKey) {
  const Json v2{{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 128}, {"format", "gptq_v2"}};
  const Json config{{"quantization_config", v2}};
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, modules(), 1);
  const io::CheckpointIndex index = io::open_checkpoint(dir.path());
  StoredFormats formats(config, index);
  const auto matrix = described(formats, kModules[0]);
  EXPECT_EQ(matrix->planes[1].words.added_to_zeros, 0);
}

// AutoGPTQ writes biases that layers do not have.
TEST(Gptq, ABiasOfZerosThatNoLayerHasIsIgnored) {
  const Json config{{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}};
  constexpr size_t kBytes = size_t{2} * kOutputs;
  std::vector<test::TinyTensor> tensors = modules();
  tensors.push_back({"q_proj.bias", {kOutputs}, "F16", std::string(kBytes, '\0')});
  tensors.push_back({"k_proj.bias", {kOutputs}, "F16", std::string(kBytes - 1, '\0') + "x"});
  tensors.push_back({"v_proj.bias", {kOutputs, 1}, "F16", std::string(kBytes, '\0')});
  tensors.push_back({"other.bias", {kOutputs}, "F16", std::string(kBytes, '\0')});
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, tensors, 1);
  const io::CheckpointIndex index = io::open_checkpoint(dir.path());
  const StoredFormats formats(config, index);
  for (const auto& [name, ignored] :
       {std::pair{"q_proj", true}, {"k_proj", false}, {"v_proj", false}, {"other", false}})
    EXPECT_EQ(formats.ignores(*index.find(std::string(name) + ".bias")), ignored) << name;
}

}  // namespace
}  // namespace sluice
