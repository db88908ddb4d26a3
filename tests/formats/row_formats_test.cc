// Formats whose planes are tensors by rows: what fits becomes a matrix; a tensor of another type or
// shape, or none, is a fault or a refusal, and nothing else.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/formats/formats.h"
#include "tests/support/checkpoint.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

using test::TinyTensor;

constexpr int64_t kRowOutputs = 24, kRowInputs = 64;

TinyTensor tensor(std::string name, std::vector<int64_t> shape, std::string dtype) {
  TinyTensor t{std::move(name), std::move(shape), std::move(dtype), {}};
  Shape of;
  for (int64_t size : t.shape) of.push_back(size);
  t.bytes.assign(stored_bytes(*parse_dtype(t.dtype), of).value(), '\1');
  return t;
}

TinyTensor numbers(std::string name, std::vector<int64_t> shape,
                   const std::vector<int64_t>& values) {
  TinyTensor t = tensor(std::move(name), std::move(shape), "I64");
  t.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return t;
}

struct Stored {
  std::string name;
  Json config;
  std::vector<TinyTensor> tensors;
};

// A layer of four bits; `axis` and `packing` as the file has them.
Stored hqq(char axis, const std::string& packing, const std::vector<int64_t>& shape) {
  return {"HQQ",
          {{"quant_method", "hqq"}},
          {tensor("a.W_q", {24, 32}, "U8"),
           tensor("a.scale", {48, 1}, "BF16"),
           tensor("a.zero", {48, 1}, "BF16"),
           {"a.axis", {}, "I32", std::string({axis, 0, 0, 0})},
           {"a.packing", {7}, "U8", packing},
           numbers("a.shape", {2}, shape)}};
}

std::vector<Stored> all_formats() {
  const auto compressed = [](const char* format, int64_t group) {
    return Json{{"quant_method", "compressed-tensors"},
                {"format", format},
                {"config_groups", {{"g", {{"weights", {{"group_size", group}}}}}}}};
  };
  const std::string state = R"({"blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.5})";
  std::vector<Stored> all{
      {"packed integers",
       compressed("pack-quantized", 32),
       {tensor("a.weight_packed", {24, 8}, "I32"), tensor("a.weight_scale", {24, 2}, "BF16"),
        tensor("a.weight_zero_point", {3, 2}, "I32"), tensor("a.weight_shape", {2}, "I64")}},
      {"integers",
       compressed("int-quantized", 32),
       {tensor("a.weight", {24, 64}, "I8"), tensor("a.weight_scale", {24, 1}, "F32"),
        tensor("a.weight_zero_point", {24, 1}, "I8")}},
      {"NVFP4",
       compressed("nvfp4-pack-quantized", 16),
       {tensor("a.weight_packed", {24, 32}, "U8"), tensor("a.weight_scale", {24, 4}, "F8_E4M3"),
        tensor("a.weight_global_scale", {1}, "F32")}},
      {"NVFP4 of ModelOpt",
       {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}},
       {tensor("a.weight", {24, 32}, "U8"), tensor("a.weight_scale", {24, 4}, "F8_E4M3"),
        tensor("a.weight_scale_2", {}, "F32")}},
      {"MXFP8",
       compressed("mxfp8-quantized", 32),
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale", {24, 2}, "U8")}},
      {"bitsandbytes, 8 bits",
       {{"quant_method", "bitsandbytes"}},
       {tensor("a.weight", {24, 64}, "I8"), tensor("a.SCB", {24}, "F32")}},
      {"FP8 of Meta",
       {{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale", {24, 1}, "F32")}},
      {"FP8 of MiniMax",
       {{"quant_method", "fp8"}, {"fmt", "float8_e4m3fn"}, {"weight_block_size", {128, 128}}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale_inv", {1, 1}, "F32")}},
      {"FP8 with scales that are bytes",
       {{"quant_method", "fp8"}, {"scale_fmt", "ue8m0"}, {"weight_block_size", {1, 32}}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale_inv", {24, 2}, "U8")}},
      {"FP8 of GPTQModel",
       {{"quant_method", "fp8"}, {"weight_scale_semantics", "inverse"}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale_inv", {24}, "F32")}},
      {"FP8 of compressed-tensors, in blocks",
       {{"quant_method", "compressed-tensors"},
        {"format", "float-quantized"},
        {"config_groups", {{"g", {{"weights", {{"block_structure", {8, 32}}}}}}}}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale", {3, 2}, "BF16")}},
      {"integers in blocks",
       {{"quant_method", "compressed-tensors"},
        {"format", "int-quantized"},
        {"config_groups", {{"g", {{"weights", {{"block_structure", "8x32"}}}}}}}},
       {tensor("a.weight", {24, 64}, "I8"), tensor("a.weight_scale", {3, 2}, "BF16"),
        tensor("a.weight_zero_point", {3, 2}, "I8")}},
      {"FP8 in small blocks",
       {{"quant_method", "fp8"}, {"weight_block_size", {8, 32}}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale_inv", {3, 2}, "F32")}},
      {"FP8 of ModelOpt, in blocks",
       {{"quant_method", "modelopt"}, {"quant_algo", "FP8_PB_WO"}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale", {1, 1, 1, 1}, "F32")}},
      {"FP8 of Quark",
       {{"quant_method", "quark"}, {"global_quant_config", {{"weight", {{"dtype", "fp8_e4m3"}}}}}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale", {24}, "F32")}},
      {"MXFP4 of Quark",
       {{"quant_method", "quark"},
        {"layer_quant_config", {{"*mlp*", {{"weight", {{"dtype", "fp4"}}}}}}}},
       {tensor("a.weight", {24, 32}, "U8"), tensor("a.weight_scale", {24, 2}, "U8")}},
      {"MXFP4 beside FP8",
       {{"quant_method", "fp8"}, {"expert_dtype", "fp4"}},
       {tensor("a.weight", {24, 32}, "I8"), tensor("a.scale", {24, 2}, "F8_E8M0")}},
      {"FP8 beside MXFP4",
       {{"quant_method", "fp8"}, {"expert_dtype", "fp4"}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.scale", {1, 1}, "F8_E8M0")}},
      {"integers of 5 bits of MLX",
       {{"quant_method", "mlx"}, {"bits", 5}, {"group_size", 32}},
       {tensor("a.weight", {24, 10}, "U32"), tensor("a.scales", {24, 2}, "BF16"),
        tensor("a.biases", {24, 2}, "BF16")}},
      {"MXFP8 of MLX",
       {{"quant_method", "mlx"}, {"bits", 8}, {"group_size", 32}, {"mode", "mxfp8"}},
       {tensor("a.weight", {24, 16}, "U32"), tensor("a.scales", {24, 2}, "U8")}},
      {"NVFP4 of MLX",
       {{"quant_method", "mlx"}, {"bits", 4}, {"group_size", 16}, {"mode", "nvfp4"}},
       {tensor("a.weight", {24, 8}, "U32"), tensor("a.scales", {24, 4}, "U8")}},
      {"NVFP4 of MLX with a scale of all",
       {{"quant_method", "mlx"}, {"bits", 4}, {"group_size", 16}, {"mode", "nvfp4"}},
       {tensor("a.weight", {24, 8}, "U32"), tensor("a.scales", {24, 4}, "U8"),
        tensor("a.global_scale", {}, "F32")}},
      {"integers of 1 bit of MLX",
       {{"quant_method", "mlx"}, {"bits", 1}, {"group_size", 32}},
       {tensor("a.weight", {24, 2}, "U32"), tensor("a.scales", {24, 2}, "F16"),
        tensor("a.biases", {24, 2}, "F16")}},
      {"packed integers of 1 bit",
       compressed("pack-quantized", 32),
       {tensor("a.weight_packed", {24, 2}, "I32"), tensor("a.weight_scale", {24, 2}, "BF16")}},
      {"int8 of torchao",
       {{"quant_method", "torchao"}},
       {tensor("a._weight_qdata", {24, 64}, "I8"), tensor("a._weight_scale", {24, 2}, "BF16"),
        tensor("a._weight_zero_point", {24, 2}, "I8")}},
      {"float8 of torchao",
       {{"quant_method", "torchao"}},
       {tensor("a._weight_qdata", {24, 64}, "F8_E4M3"), tensor("a._weight_scale", {24, 1}, "F32")}},
      {"four bits of torchao",
       {{"quant_method", "torchao"}},
       {tensor("a._weight_qdata", {24, 32}, "I8"), tensor("a._weight_scale", {2, 24}, "BF16"),
        tensor("a._weight_zero_point", {2, 24}, "BF16")}},
      {"ternary codes of BitNet",
       {{"quant_method", "bitnet"}},
       {tensor("a.weight", {6, 64}, "U8"), tensor("a.weight_scale", {1}, "BF16")}},
      {"integers with static ranges",
       {{"quant_method", "gemma"}},
       {tensor("a.weight", {24, 32}, "U8"), tensor("a.weight_scale", {24, 1}, "F32")}},
      {"a table with static ranges",
       {{"quant_method", "gemma"}},
       {tensor("a.embedding_quantized", {24, 16}, "U8"),
        tensor("a.embedding_scale", {24, 2}, "F32")}},
      {"integers of metal",
       {{"quant_method", "metal"}, {"bits", 4}, {"group_size", 32}},
       {tensor("a.weight", {24, 8}, "U32"), tensor("a.scales", {24, 2}, "BF16"),
        tensor("a.qbiases", {24, 2}, "BF16")}},
      {"MXFP8 of MiniMax",
       {{"quant_method", "mxfp8"}, {"weight_block_size", {1, 32}}},
       {tensor("a.weight", {24, 64}, "F8_E4M3"), tensor("a.weight_scale_inv", {24, 2}, "U8")}},
      hqq(1, "4bit_u8", {24, 64}),
      {"packed integers of 3 bits",
       compressed("pack-quantized", 32),
       {tensor("a.weight_packed", {24, 6}, "I32"), tensor("a.weight_scale", {24, 2}, "BF16")}},
      {"bitsandbytes, 4 bits",
       {{"quant_method", "bitsandbytes"}},
       {tensor("a.weight", {768, 1}, "U8"),
        tensor("a.weight.absmax", {24}, "U8"),
        tensor("a.weight.quant_map", {16}, "F32"),
        tensor("a.weight.nested_absmax", {1}, "F32"),
        tensor("a.weight.nested_quant_map", {256}, "F32"),
        {"a.weight.quant_state.bitsandbytes__nf4", {std::ssize(state)}, "U8", state}}}};
  return all;
}

// Empty: it became a matrix; else why not.
std::string fault_of(const Stored& stored) {
  const test::TempDir dir;
  Json config = test::tiny_config();
  config["quantization_config"] = stored.config;
  std::vector<TinyTensor> tensors = stored.tensors;
  tensors.push_back(tensor("b.weight", {2}, "BF16"));
  test::write_checkpoint(dir.path(), config, tensors, 1);
  const io::CheckpointIndex index = io::open_checkpoint(dir.path());
  Piece piece;
  piece.source = "a.weight";
  piece.rows = kRowOutputs;
  piece.cols = kRowInputs;
  piece.view.group = kRowOutputs;
  std::vector<std::string> faults;
  try {
    StoredFormats formats(config, index);
    const auto found = formats.find(piece);
    if (found.codes == nullptr) return "missing";
    const Shape shape{kRowOutputs, kRowInputs};
    const auto matrix = formats.describe(found, {piece, kRowOutputs, shape, "config.json"}, faults);
    EXPECT_EQ(matrix == nullptr, !faults.empty());
    if (matrix == nullptr) return faults.front();
    formats.finish();
    return matrix->kept ? "" : "plain";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
    return e.what();
  }
}

TEST(RowFormats, HqqRefusesOtherGroupsAndPackings) {
  EXPECT_THAT(fault_of(hqq(0, "4bit_u8", {24, 64})), testing::HasSubstr("axis is 0"));
  EXPECT_THAT(fault_of(hqq(1, "8bit_u8", {24, 64})), testing::HasSubstr("packing is 8bit_u8"));
  EXPECT_THAT(fault_of(hqq(1, "4bit_u8", {64, 24})), testing::HasSubstr("shape is [64, 24]"));
  Stored three = hqq(1, "3bit_32", {24, 64});
  three.tensors[0] = tensor("a.W_q", {5, 32}, "I32");
  EXPECT_THAT(fault_of(three), testing::HasSubstr("those of 3 bits are not supported"));
}

TEST(RowFormats, BitNetRefusesWeightsThatItWouldHaveToMake) {
  Stored stored{"", {{"quant_method", "bitnet"}}, {tensor("a.weight", {24, 64}, "BF16")}};
  stored.config["quantization_mode"] = "online";
  EXPECT_THAT(fault_of(stored), testing::HasSubstr("quantization_mode online is not supported"));
  stored.config = {{"quant_method", "bitnet"}, {"use_rms_norm", true}};
  EXPECT_THAT(fault_of(stored), testing::HasSubstr("use_rms_norm is not supported"));
}

TEST(RowFormats, WhatFitsIsAMatrixAndWhatDoesNotIsAFault) {
  for (const Stored& good : all_formats()) {
    SCOPED_TRACE(good.name);
    EXPECT_EQ(fault_of(good), "");
    for (size_t i = 0; i < good.tensors.size(); ++i) {
      Stored bad = good;
      bad.tensors.erase(bad.tensors.begin() + static_cast<long>(i));
      const std::string& name = good.tensors[i].name;
      const bool may_lack = (name.ends_with("zero_point") && good.name != "four bits of torchao") ||
                            name.ends_with("_shape") || name == "a.global_scale";
      EXPECT_EQ(fault_of(bad).empty(), may_lack) << "without " << name;
      std::vector<std::vector<int64_t>> shapes{{}, {0}, {1}, {5, 3}, {24, 0}, {24, 3}, {1, 1, 1}};
      shapes.push_back(good.tensors[i].shape);
      shapes.back().push_back(2);
      for (const auto& shape : shapes) {
        bad = good;
        bad.tensors[i] = tensor(name, shape, good.tensors[i].dtype);
        fault_of(bad);  // some fit
      }
      bad = good;
      bad.tensors[i] = tensor(name, good.tensors[i].shape, "C64");
      EXPECT_NE(fault_of(bad), "") << name << " of another type";
    }
  }
}

TEST(RowFormats, AFaultOfASmallTensorNamesItsFile) {
  for (Stored stored : all_formats()) {
    TinyTensor& last = stored.tensors.back();
    if (!last.name.ends_with("nf4")) continue;
    last.bytes.assign(last.bytes.size(), '7');
    const std::string fault = fault_of(stored);
    EXPECT_NE(fault.find("model.safetensors: " + last.name), std::string::npos) << fault;
  }
  Stored ordered = all_formats().front();
  ordered.tensors.push_back(tensor("a.weight_g_idx", {kRowInputs}, "I32"));
  const std::string fault = fault_of(ordered);
  EXPECT_NE(fault.find("model.safetensors: a.weight_g_idx"), std::string::npos) << fault;
}

TEST(RowFormats, IntegersAreNoNumbersOfANorm) {
  const test::TempDir dir;
  const Json config = test::tiny_config();
  test::write_checkpoint(dir.path(), config, {tensor("a.weight", {4, 2}, "I64")}, 1);
  const io::CheckpointIndex index = io::open_checkpoint(dir.path());
  StoredFormats formats(config, index);
  for (int64_t row : {0, 2}) {  // a norm's weight, or a table of choices, as a vector
    Piece piece;
    piece.source = "a.weight";
    piece.rows = 1;
    piece.cols = 8;
    piece.vector = true;
    piece.view.row = row;
    std::vector<std::string> faults;
    formats.describe(formats.find(piece), {piece, 8, Shape{4, 2}, "config.json"}, faults);
    EXPECT_EQ(faults.empty(), row > 0);
  }
}

}  // namespace
}  // namespace sluice
