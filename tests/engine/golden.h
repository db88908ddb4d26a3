// Models with what Hugging Face transformers computes for them: which there are, how they are run,
// and how far results may be from theirs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "src/models/registry.h"
#include "tests/support/safetensors.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp.h"

namespace sluice::test {

// Returns the MODEL of a folder with a golden: the folder itself, or a GGUF file in it.
inline std::filesystem::path model_in(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "manifest.json")) return folder;
  const Json manifest = Json::parse(read_file(folder / "manifest.json"));
  const std::filesystem::path file = folder / manifest.value("open", "model.gguf");
  return std::filesystem::exists(file) ? file : folder;
}

inline bool is_supported(const std::filesystem::path& folder) {
  const Json config = open_model(model_in(folder))->config();
  const bool wrapper = config.contains("text_config");
  const auto name = wrapper ? config["text_config"].at("model_type").get<std::string>()
                            : config.at("architectures").at(0).get<std::string>();
  return std::ranges::any_of(families(), [&](const Family& f) {
    if (!wrapper) return f.architecture == name;
    return f.model_type == name || std::ranges::count(f.text_types, name) > 0;
  });
}

// Returns the directories in `root`; none if `root` does not exist.
inline std::vector<std::filesystem::path> models_in(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::is_directory(root)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(root)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

// Returns the models in tests/data/models: always there, and all of them supported.
inline std::vector<std::filesystem::path> bundled_models() {
  return models_in(source_dir() / "tests/data/models");
}
// Models with an op, a layout or a way of streaming that no other bundled model has.
inline std::vector<std::filesystem::path> models_with_own_parts() {
  constexpr std::string_view kNames[] = {"apertus",         "bloom",
                                         "gemma3",          "gemma4_e",
                                         "gguf_bf16_tied",  "glm4_moe",
                                         "gpt2_noprefix",   "gptj",
                                         "granitemoe",      "llama_rope_dynamic",
                                         "mistral_sliding", "olmo3",
                                         "qwen3_5",         "qwen3_5_moe",
                                         "falcon_h1",       "lfm2",
                                         "jamba_dense",     "gpt_oss",
                                         "kimi_k2",         "mistral4_text",
                                         "phimoe",          "llama4_text",
                                         "gemma4_text_moe", "gemma3n"};
  std::vector<std::filesystem::path> models = bundled_models();
  std::erase_if(models, [&](const std::filesystem::path& model) {
    return std::ranges::find(kNames, model.filename().string()) == std::end(kNames);
  });
  check(std::ssize(models) == std::ssize(kNames), "a model of the list is bundled no more");
  return models;
}
// The models that a GPU computes: those with heads of multiples of 4 elements.
inline std::vector<std::filesystem::path> for_gpus(std::vector<std::filesystem::path> models) {
  std::erase_if(models, [](const std::filesystem::path& model) {
    bool is_refused = false;
    DecoderSpec spec = read_model(*open_model(model_in(model))).spec;
    each<AttentionSpec>(spec, [&](const AttentionSpec& a) { is_refused |= a.head_dim % 4 != 0; });
    return is_refused;
  });
  return models;
}
inline std::filesystem::path bundled_model(const char* name) {
  return source_dir() / "tests/data/models" / name;
}
// A plain decoder, transposed and GGUF's matrices, stacked and single experts, a state, and the
// rows of a table for each layer.
inline std::vector<std::filesystem::path> models_stored_otherwise() {
  std::vector<std::filesystem::path> models;
  for (const char* name : {"llama_rope_dynamic", "gpt2_noprefix", "gguf_bf16_tied", "granitemoe",
                           "glm4_moe", "qwen3_5", "gemma4_e"})
    models.push_back(bundled_model(name));
  return models;
}

// Shared fixtures of formats with plain weights.
inline constexpr const char* kSharedFormats[] = {
    "gguf_f16",    "gguf_bf16",          "gguf_bf16_tied", "base", "mixed_dtypes",
    "pytorch_bin", "pytorch_bin_legacy", "meta_pth",       "npz",  "npcache"};

// The shared fixtures whose architecture is supported, and those of supported
// formats; none where the fixtures are not there, or not all is asked for:
// bundled models go the same ways.
inline std::vector<std::filesystem::path> shared_models() {
  std::vector<std::filesystem::path> found;
  if (oracle_dir().empty() || !runs_all()) return found;
  for (const char* kind : {"models", "text"}) {
    for (const auto& model : models_in(oracle_dir() / kind))
      if (is_supported(model)) found.push_back(model);
  }
  for (const char* format : kSharedFormats) found.push_back(oracle_dir() / "formats" / format);
  return found;
}

inline std::string golden_name(const testing::TestParamInfo<std::filesystem::path>& model) {
  return model.param.filename().string();
}

struct Outcome {
  std::vector<std::vector<float>> logits;  // of each position
  std::vector<int32_t> greedy;
};

// The logits of a prompt, in chunks of at most `chunk` tokens, and the tokens that follow it.
inline Outcome run_prompt(LoadedModel& model, const std::vector<int32_t>& prompt,
                          int64_t new_tokens, int64_t chunk) {
  int64_t length = std::ssize(prompt);
  Runner& runner = model.runner();
  Outcome result;
  {
    Sequence sequence = runner.new_sequence();
    int64_t step = std::min(chunk, runner.max_logits_rows());
    for (int64_t at = 0; at < length; at += step) {
      auto ids = std::span(prompt).subspan(static_cast<size_t>(at),
                                           static_cast<size_t>(std::min(step, length - at)));
      Tensor logits = runner.logits(runner.step(sequence, ids, length));
      for (int64_t r = 0; r < logits.rows; ++r) {
        result.logits.emplace_back(logits.row<float>(r), logits.row<float>(r) + logits.cols);
      }
    }
  }
  if (new_tokens == 0) return result;
  Request request;
  request.prompt = prompt;
  request.max_tokens = new_tokens;
  Engine engine(runner, nullptr, 1);
  OutputId id{engine.add(request), 0};
  while (!engine.idle()) engine.step({});
  result.greedy = engine.take(id).ids;
  return result;
}

// Returns the mean difference of logits of the same prompt, as a share of what logits are, without
// the `left_out` positions, but for one, that differ most.
inline double relative_difference(const Outcome& a, const Outcome& b, size_t left_out = 0) {
  EXPECT_FALSE(a.logits.empty());
  EXPECT_EQ(a.logits.size(), b.logits.size());
  std::vector<double> differences;  // of each position
  double sizes = 0;
  for (size_t r = 0; r < std::min(a.logits.size(), b.logits.size()); ++r) {
    EXPECT_EQ(a.logits[r].size(), b.logits[r].size());
    differences.push_back(0);
    for (size_t c = 0; c < std::min(a.logits[r].size(), b.logits[r].size()); ++c) {
      differences.back() += std::abs(a.logits[r][c] - b.logits[r][c]);
      sizes += std::abs(a.logits[r][c]);
    }
  }
  if (differences.empty()) return 0;
  const auto positions = static_cast<double>(differences.size());
  std::ranges::sort(differences);
  differences.resize(differences.size() - std::min(left_out, differences.size() - 1));
  const auto kept = static_cast<double>(differences.size());
  return std::accumulate(differences.begin(), differences.end(), 0.0) / (sizes * kept / positions);
}

// Says if a layer chooses experts.
inline bool has_experts(const LayerSpec& layer) {
  return std::ranges::any_of(layer.mlps, [](const MlpBranch& m) { return m.experts.has_value(); });
}

// The largest difference between logits of a GPU and a CPU in float32, unless codes of inputs
// differ.
inline constexpr double kMostInFloat32 = 0.002;

// The allowed difference between logits of a GPU and a CPU: sums are in another order, and codes
// fall otherwise; in bf16 attention, too, which is rounded where many rows or the CPU compute it.
// An activation that moves to the next code of E4M3 moves by a 16th. own_functions: the GPU's own,
// which differ in the last bits. That is enough for a code of an input to fall otherwise; one,
// moved by one, changes the logits of a small model by 0.002 in the median, and by 0.02 at most.
// change: a manifest's bf16_mean_abs as a share of what logits are, or that of a model without one.
// Bounds are twice the largest share of it in 22 of the golden models on the emulated device: 0.30
// in bf16, 1.09 with codes, 2.9 with inputs of E4M3. The last is more of jamba_dense's logits than
// of others', as bf16 changes these three times as much. The two known figures of an H200, 0.1228
// and 0.0647, are those of the emulated device.
inline double most_difference_of_devices(std::string_view scheme, DtypeChoice dtype,
                                         std::optional<DType> kv_dtype, bool own_functions,
                                         double change = 0.02) {
  const bool dynamic = scheme.starts_with("fp8_dynamic"), of_inputs = dynamic || scheme == "int8";
  const bool codes = of_inputs || (kv_dtype && is_float8(*kv_dtype));
  if (dtype == DtypeChoice::f32 && !(of_inputs && own_functions))
    return codes ? kMostInFloat32 : 1e-5;
  return (dynamic ? 6.0 : codes ? 2.2 : 0.6) * change;
}

struct Golden {
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;
  std::vector<float> logits;
};

class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& model)
      : manifest_(Json::parse(read_file(model / "manifest.json"))),
        file_(model / "golden.safetensors"),
        has_experts_(has_experts(read_model(*open_model(model_in(model))).spec)) {}
  size_t prompts() const { return manifest_.at("prompts").size(); }
  Golden golden(size_t i) const {
    std::string p = "prompt" + std::to_string(i);
    auto narrow = [](const std::vector<int64_t>& wide) {
      return std::vector<int32_t>(wide.begin(), wide.end());
    };
    return {narrow(file_.values<int64_t>(p + ".input_ids")),
            narrow(file_.values<int64_t>(p + ".greedy_ids")), file_.values<float>(p + ".logits")};
  }

  void expect_float32(const Outcome& actual, const Golden& golden) const {
    double atol = kFloat32Share * tolerance("fp32_atol"),
           rtol = kFloat32Share * tolerance("fp32_rtol");
    std::vector<double> all = errors(actual, golden);
    for (size_t j = 0; j < all.size(); ++j)
      ASSERT_LE(all[j], atol + rtol * std::abs(golden.logits[j])) << "logit " << j;
  }

  // With experts, positions where others may be chosen are judged by the mean alone.
  void expect_bfloat16(const Outcome& actual, const Golden& golden) const {
    std::vector<double> all = errors(actual, golden);
    ASSERT_FALSE(all.empty());
    EXPECT_LE(mean_of(all), kBfloat16Share * tolerance("bf16_mean_abs"));
    if (has_experts_) drop_worst(chosen_otherwise(actual), actual.logits.size(), all);
    std::ranges::sort(all);
    ASSERT_FALSE(all.empty());
    EXPECT_LE(all[all.size() * 99 / 100], kBfloat16Share * tolerance("bf16_p99_abs"));
    EXPECT_LE(all.back(), kBfloat16Share * tolerance("bf16_max_abs"));
  }

  // Compares what a GPU computed of a golden's prompt with a CPU's. With experts, where roundings
  // differ, the positions where others may be chosen are judged by their error: in glm4_moe with
  // fp8_per_channel one of nine differs by 0.48, as another expert is chosen for it, and with it
  // the mean by 0.065, on an H200 and on the emulated device.
  void expect_same_on_devices(const Outcome& gpu, const Outcome& cpu, const Golden& golden,
                              std::string_view scheme, DtypeChoice dtype,
                              std::optional<DType> kv_dtype, bool own_functions) const {
    double size = 0;
    for (float logit : golden.logits) size += std::abs(logit);
    const double change =
        tolerance("bf16_mean_abs") * static_cast<double>(golden.logits.size()) / size;
    const double most = most_difference_of_devices(scheme, dtype, kv_dtype, own_functions, change);
    const size_t left_out = has_experts_ && most > kMostInFloat32 ? chosen_otherwise(gpu) : 0;
    EXPECT_LE(relative_difference(gpu, cpu, left_out), most);
    // An FP8 cache has no bound of its own there.
    if (left_out > 0 && !kv_dtype) expect_scheme(gpu, golden, scheme);
  }

  // The mean error of quantized weights, in any compute type. With experts, which codes choose
  // otherwise, it was up to 2.3 times that of the rest.
  void expect_scheme(const Outcome& actual, const Golden& golden, std::string_view scheme) const {
    const double share = scheme_share(scheme) * (has_experts_ ? 4 : 1);
    EXPECT_LE(mean_of(errors(actual, golden)), share * tolerance("bf16_mean_abs")) << scheme;
  }

 private:
  // Number of positions for which a rounding may choose another expert, which changes their logits
  // at will.
  static size_t chosen_otherwise(const Outcome& actual) { return 2 + actual.logits.size() / 16; }

  // Allowed errors, as shares of the manifest's tolerances (twice what transformers' own bf16
  // changes): some 2.5 times the errors of each of 13 models. In float32 they were 2.5 % at most,
  // in bf16 21 to 31 % in the mean and up to 37 % of the largest.
  static constexpr double kFloat32Share = 0.1;
  static constexpr double kBfloat16Share = 0.8;

  // Allowed shares of the mean error in bf16: weights of E4M3 were 2.4 to 3.8 times it, with inputs
  // of E4M3, too, 3.4 to 5.3 times, and int8 1.0 to 1.5 times.
  static double scheme_share(std::string_view scheme) {
    if (scheme == "none") return kBfloat16Share;
    if (scheme == "int8") return 3;
    return scheme.starts_with("fp8_dynamic") ? 10 : 7.5;
  }

  static bool has_experts(const DecoderSpec& spec) {
    return std::ranges::any_of(spec.kinds,
                               [](const LayerSpec& layer) { return test::has_experts(layer); });
  }

  // Leaves out the errors of the positions with the largest.
  static void drop_worst(size_t count, size_t positions, std::vector<double>& errors) {
    const auto width = std::ssize(errors) / static_cast<std::ptrdiff_t>(positions);
    for (; count > 0 && std::ssize(errors) > width; --count) {
      const auto worst = (std::ranges::max_element(errors) - errors.begin()) / width * width;
      errors.erase(errors.begin() + worst, errors.begin() + worst + width);
    }
  }

  // Returns the error of each logit. Fails, and returns none, if there are more or fewer than the
  // golden's.
  static std::vector<double> errors(const Outcome& actual, const Golden& golden) {
    std::vector<double> all;
    for (const std::vector<float>& row : actual.logits)
      all.insert(all.end(), row.begin(), row.end());
    EXPECT_FALSE(all.empty());
    EXPECT_EQ(all.size(), golden.logits.size());
    if (all.size() != golden.logits.size()) return {};
    for (size_t j = 0; j < all.size(); ++j) all[j] = std::abs(all[j] - golden.logits[j]);
    return all;
  }
  static double mean_of(const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0) /
           static_cast<double>(std::max<size_t>(all.size(), 1));
  }

  double tolerance(const char* key) const {
    return manifest_.at("tolerance").at(key).get<double>();
  }

  Json manifest_;
  SafetensorsFile file_;
  bool has_experts_;
};

}  // namespace sluice::test
