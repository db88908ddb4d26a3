// Places where checkpoints say what has quantized them, and the names that they give it.
#include "src/formats/quantization_config.h"

#include <gtest/gtest.h>

#include <map>

namespace sluice {
namespace {

// The settled quantization_config; null where there is none.
Json settled(Json config, const std::map<std::string, Json>& files = {}) {
  settle_quantization_config(config, [&](const char* file) -> std::optional<Json> {
    const auto found = files.find(file);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
  return config.value("quantization_config", Json());
}

std::string method(const Json& quantization) { return quantization.value("quant_method", ""); }

TEST(QuantizationConfig, IsFoundUnderOtherKeysAndInOtherFiles) {
  EXPECT_EQ(settled({{"compression_config", {{"quant_method", "compressed-tensors"}}}})
                .value("quant_method", ""),
            "compressed-tensors");
  const Json bits{{"bits", 4}, {"group_size", 128}};
  EXPECT_EQ(method(settled(Json::object(), {{"quantize_config.json", bits}})), "gptq");
  const Json of_awq{{"w_bit", 4}, {"q_group_size", 128}, {"version", "GEMM"}};
  EXPECT_EQ(method(settled(Json::object(), {{"quant_config.json", of_awq}})), "awq");
  const Json of_modelopt{{"quantization", {{"quant_algo", "FP8"}}}};
  EXPECT_EQ(method(settled(Json::object(), {{"hf_quant_config.json", of_modelopt}})), "modelopt");
  EXPECT_EQ(method(settled({{"quantization_config", of_modelopt}})), "modelopt");
  const Json only_kv{{"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}}}};
  EXPECT_TRUE(settled(Json::object(), {{"hf_quant_config.json", only_kv}}).is_null());
  EXPECT_TRUE(settled(Json::object(), {{"quantize_config.json", Json::array()}}).is_null());
  // config.json's own counts.
  EXPECT_EQ(method(settled({{"quantization_config", {{"quant_method", "fp8"}}}},
                           {{"quantize_config.json", bits}})),
            "fp8");
}

TEST(QuantizationConfig, MethodsHaveOneName) {
  const auto of = [](Json quantization) {
    return settled({{"quantization_config", std::move(quantization)}});
  };
  EXPECT_EQ(method(of({{"quant_method", "gptq_marlin"}})), "gptq");
  EXPECT_EQ(method(of({{"quant_method", "awq_marlin"}})), "awq");
  const Json small{{"quant_method", "modelopt"}, {"quant_algo", "fp8_pb_wo"}};
  EXPECT_EQ(of(small).value("quant_algo", ""), "FP8_PB_WO");
  EXPECT_EQ(method(of({{"load_in_4bit", true}})), "bitsandbytes");
  EXPECT_EQ(method(of({{"quant_method", "hqq"}})), "hqq");
  const Json of_mlx{{"bits", 4}, {"group_size", 64}};
  EXPECT_EQ(method(settled({{"quantization", of_mlx}})), "mlx");
  EXPECT_EQ(method(settled({{"quantization", of_mlx}, {"quantization_config", of_mlx}})), "mlx");
  EXPECT_EQ(method(settled(
                {{"quantization", of_mlx}, {"quantization_config", {{"quant_method", "fp8"}}}})),
            "mlx");
  const auto packing = [&](Json quantization) {
    return of(std::move(quantization)).value("packing_format", "");
  };
  EXPECT_EQ(packing({{"quant_method", "intel/auto-round"}, {"backend", "auto_round:exllamav2"}}),
            "auto_round:auto_gptq");
  // Only AutoGPTQ's packing has zeros less 1.
  for (const auto& [name, zeros] : {std::pair{"auto_round:auto_gptq", "gptq"},
                                    {"auto_round:gptq", "gptq"},
                                    {"auto", "gptq"},
                                    {"auto_round", "gptq_v2"},
                                    {"auto_round:gptqmodel", "gptq_v2"},
                                    {"auto_round:exllamav2", "gptq_v2"},
                                    {"auto_round:tritonv2", "gptq_v2"}}) {
    const Json found = of({{"quant_method", "auto-round"}, {"packing_format", name}});
    EXPECT_EQ(found.value("packing_format", ""), "auto_round:auto_gptq") << name;
    EXPECT_EQ(found.value("checkpoint_format", ""), zeros) << name;
  }
  EXPECT_EQ(packing({{"quant_method", "auto-round"}, {"packing_format", "auto_round:awq"}}),
            "auto_round:auto_awq");
  EXPECT_EQ(packing({{"quant_method", "auto-round"}, {"packing_format", "auto_round:fp8_static"}}),
            "auto_round:fp8_static");
  EXPECT_EQ(packing({{"quant_method", "auto-round"},
                     {"packing_format", "auto_round:auto_gptq"},
                     {"rotation_config", {{"hadamard_type", "hadamard"}}}}),
            "auto_round:auto_gptq and rotation_config");
  // Floats of AutoRound lie as others have them.
  EXPECT_EQ(method(of({{"quant_method", "auto-round"}, {"data_type", "fp"}})), "fp8");
  for (const char* type : {"mx_fp", "mx_fp_rceil", "nv_fp"})
    EXPECT_EQ(method(of({{"quant_method", "auto-round"}, {"data_type", type}})),
              "compressed-tensors");
  EXPECT_EQ(method(of({{"quant_method", "auto-round"}, {"data_type", "nvfp4_v2"}})), "auto-round");
  // Also that of a language model within another one.
  Json wrapper{{"text_config", {{"quantization_config", {{"quant_method", "awq_marlin"}}}}}};
  settle_quantization_config(wrapper, [](const char*) { return std::nullopt; });
  EXPECT_EQ(method(wrapper["text_config"]["quantization_config"]), "awq");
}

}  // namespace
}  // namespace sluice
