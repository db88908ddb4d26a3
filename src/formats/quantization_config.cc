#include "src/formats/quantization_config.h"

#include <array>
#include <string>
#include <utility>

namespace sluice {
namespace {

constexpr const char* kKey = "quantization_config";
constexpr const char* kMethod = "quant_method";
constexpr const char* kAlgorithm = "quant_algo";

bool is_filled(const Json& config, const char* key) {
  return config.contains(key) && config[key].is_object() && !config[key].empty();
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// ModelOpt's own file, which config.json may have, too. Without an algorithm it quantizes the KV
// cache only.
std::optional<Json> of_modelopt(const Json& file) {
  if (!file.is_object() || !is_filled(file, "quantization")) return std::nullopt;
  Json quantization = file["quantization"];
  if (text_of(quantization, kAlgorithm).empty()) return std::nullopt;
  quantization[kMethod] = "modelopt";
  return quantization;
}

// A file of AutoGPTQ, whose keys AutoAWQ's first files have with other names.
std::optional<Json> of_quantizer(const Json& file) {
  if (!file.is_object() || (!file.contains("bits") && !file.contains("w_bit"))) return std::nullopt;
  Json quantization = file;
  const bool awq = file.contains("w_bit") || file.contains("zero_point");
  if (text_of(file, kMethod).empty()) quantization[kMethod] = awq ? "awq" : "gptq";
  return quantization;
}

// The values of a file beside config.json, the first that has some.
std::optional<Json> of_files(const std::function<std::optional<Json>(const char* file)>& read) {
  using Take = std::optional<Json> (*)(const Json&);
  constexpr auto kFiles = std::to_array<std::pair<const char*, Take>>({
      {"hf_quant_config.json", of_modelopt},
      {"quantize_config.json", of_quantizer},
      {"quant_config.json", of_quantizer},
  });
  for (const auto& [name, take] : kFiles) {
    const std::optional<Json> file = read(name);
    if (!file) continue;
    if (std::optional<Json> found = take(*file)) return found;
  }
  return std::nullopt;
}

// The settings of MLX, whose key stands beside that of the checkpoint which it has quantized, and
// counts.
bool has_mlx(const Json& config) {
  constexpr const char* kOfMlx = "quantization";
  if (!is_filled(config, kOfMlx)) return false;
  const Json& settings = config[kOfMlx];
  return settings.contains("bits") && settings.contains("group_size");
}
Json of_mlx(const Json& config) {
  Json quantization = config["quantization"];
  quantization[kMethod] = "mlx";
  return quantization;
}

// Floats of AutoRound, which lie as those of compressed-tensors or of FP8.
void settle_auto_round_floats(Json& q, std::string_view type) {
  if (type.starts_with("fp")) {
    q[kMethod] = "fp8";
  } else if (type.starts_with("mx_fp") || type.starts_with("nv_fp")) {
    q[kMethod] = "compressed-tensors";
    q["config_groups"] = Json::object();
    for (const char* format : {"mxfp4-pack-quantized", "mxfp8-quantized", "nvfp4-pack-quantized"})
      q["config_groups"][format] = {{"format", format}};
  }
}

// AutoRound names the packing, or in its first versions who multiplies what is packed so.
void settle_auto_round(Json& q) {
  constexpr const char* kPacking = "packing_format";
  q[kMethod] = "auto-round";
  for (const std::string rotation : {"rotation_config", "spinquant_config"}) {
    if (!is_filled(q, rotation.c_str())) continue;
    q[kPacking] = text_of(q, kPacking) + " and " + rotation;  // of activations, too: none is read
    return;
  }
  const std::string type = text_of(q, "data_type");
  if (!type.empty() && !type.starts_with("int")) return settle_auto_round_floats(q, type);
  std::string packing = text_of(q, kPacking);
  if (packing.empty()) packing = text_of(q, "backend");
  const auto has = [&](const char* part) { return packing.find(part) != std::string::npos; };
  if (has("awq")) {
    q[kPacking] = "auto_round:auto_awq";
    return;
  }
  // Without the name of AutoGPTQ zeros are stored as they are.
  const bool as_auto_gptq =
      packing.empty() || packing == "auto" || (has("gptq") && !has("gptqmodel"));
  if (!as_auto_gptq && packing != "auto_round" && !has("gptqmodel") && !has("exllama") &&
      !has("triton"))
    return;
  q[kPacking] = "auto_round:auto_gptq";
  if (!q.contains("checkpoint_format")) q["checkpoint_format"] = as_auto_gptq ? "gptq" : "gptq_v2";
}

// ModelOpt writes some names in small letters.
void settle_algorithm(Json& q) {
  std::string algorithm = text_of(q, kAlgorithm);
  for (char& c : algorithm)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  if (!algorithm.empty()) q[kAlgorithm] = algorithm;
}

// Names of what multiplies the weights, instead of what has quantized them.
void settle_method(Json& q) {
  constexpr auto kNames = std::to_array<std::pair<std::string_view, const char*>>({
      {"gptq_marlin", "gptq"},
      {"awq_marlin", "awq"},
      {"compressed_tensors", "compressed-tensors"},
      {"modelopt_fp4", "modelopt"},
      {"modelopt_mixed", "modelopt"},
      {"modelopt_mxfp8", "modelopt"},
  });
  const std::string method = text_of(q, kMethod);
  for (const auto& [name, settled] : kNames)
    if (method == name) q[kMethod] = settled;
  if (text_of(q, kMethod) == "modelopt") settle_algorithm(q);
  if (method == "auto-round" || method == "intel/auto-round" || method == "inc")
    settle_auto_round(q);
  // Two tools name no method.
  const auto is_true = [&](const char* key) { return q.contains(key) && q[key] == true; };
  if (method.empty() && (is_true("load_in_4bit") || is_true("load_in_8bit")))
    q[kMethod] = "bitsandbytes";
  if (method.empty() && q.contains("bits") && q.contains("group_size")) q[kMethod] = "mlx";
}

}  // namespace

void settle_quantization_config(Json& config,
                                const std::function<std::optional<Json>(const char* file)>& read) {
  constexpr const char* kOfCompressor = "compression_config";  // llm-compressor's first name
  if (!config.is_object()) return;
  if (has_mlx(config)) config[kKey] = of_mlx(config);
  if (!is_filled(config, kKey) && is_filled(config, kOfCompressor))
    config[kKey] = config[kOfCompressor];
  if (is_filled(config, kKey)) {
    if (auto found = of_modelopt(config[kKey])) config[kKey] = *std::move(found);
  }
  if (!config.contains(kKey) || config[kKey].is_null()) {
    const bool inner = is_filled(config, "text_config") && is_filled(config["text_config"], kKey);
    std::optional<Json> found = inner ? std::nullopt : of_files(read);
    if (found) config[kKey] = *std::move(found);
  }
  for (Json* holder : {&config, config.contains("text_config") ? &config["text_config"] : nullptr})
    if (holder != nullptr && holder->is_object() && is_filled(*holder, kKey))
      settle_method((*holder)[kKey]);
}

}  // namespace sluice
