// A whole model as tests run it, on the CPU or another device.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/golden.h"
#include "tests/engine/placed.h"

namespace sluice::test {

struct How {
  std::function<std::shared_ptr<Backend>()> backend = {};  // none: the CPU
  // Joins ranks that have a device each; none: they have none.
  std::function<std::shared_ptr<const DeviceLink>(const Group&, Device&)> link = {};
  void (*check)(LoadedModel&) = nullptr;  // called after a run
  DtypeChoice dtype = DtypeChoice::bf16;
  Isa isa = Isa::automatic;
  int threads = 2;
  io::ReaderKind reader = io::ReaderKind::automatic;
  int64_t chunk = 512;
  int64_t block_size = 16;
  std::string_view scheme = "none";
  bool norms_too = false;  // the scheme is that of norms as well
  std::optional<DType> kv_dtype = {};
  std::string place = {};
  int64_t cpu_rows = 0;  // beside a device: ModelOptions::cpu_rows
  std::filesystem::path spill = {};
  int stages = 1;              // ModelOptions::pipeline_parallel_size
  bool whole_experts = false;  // ModelOptions::expert_parallel
};

inline ModelOptions options_for(const std::filesystem::path& model, const How& how) {
  ModelOptions options;
  options.model = model_in(model);
  if (how.backend) options.backend = how.backend();
  options.dtype = how.dtype;
  options.isa = how.isa;
  options.threads = how.threads;
  options.reader = how.reader;
  options.block_size = how.block_size;
  options.kv_dtype = how.kv_dtype;
  if (!how.place.empty()) options.place = parse_place_rules(how.place);
  options.cpu_rows = how.cpu_rows;
  if (!how.spill.empty()) options.spill.directories = {how.spill};
  options.pipeline_parallel_size = how.stages;
  options.expert_parallel = how.whole_experts;
  options.quantize.scheme = *find_quant_scheme(how.scheme);
  if (how.norms_too) options.quantize.roles.insert(ParamRole::norm);
  return options;
}

// A model for prompts of at most `prompt` tokens and sequences of at most `tokens`.
inline std::unique_ptr<Ready> loaded(const std::filesystem::path& model, int64_t prompt,
                                     int64_t tokens, const How& how) {
  return std::make_unique<Ready>(options_for(model, how), [&](const Planner& planner) {
    return planner.run_shape(tokens, prompt, prompt);
  });
}

// A model for prompts of a golden file and the tokens after each.
inline std::unique_ptr<Ready> loaded(const std::filesystem::path& model,
                                     std::span<const Golden> goldens, const How& how) {
  int64_t prompt = 0, tokens = 0;
  for (const Golden& g : goldens) {
    prompt = std::max(prompt, std::ssize(g.ids));
    tokens = std::max(tokens, std::ssize(g.ids) + std::ssize(g.greedy));
  }
  return loaded(model, prompt, tokens, how);
}

// A prompt on a model of its own.
inline Outcome run_model(const std::filesystem::path& model, const std::vector<int32_t>& prompt,
                         int64_t new_tokens, const How& how) {
  const int64_t length = std::ssize(prompt);
  const auto ready = loaded(model, length, length + new_tokens, how);
  Outcome result = run_prompt(ready->model, prompt, new_tokens, how.chunk);
  if (how.check != nullptr) how.check(ready->model);
  return result;
}

}  // namespace sluice::test
