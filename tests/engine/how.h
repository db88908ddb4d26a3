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

namespace sluice::test {

struct How {
  std::function<std::shared_ptr<Backend>()> backend = {};  // none: the CPU
  void (*check)(Session&) = nullptr;                       // called after a run
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
  int64_t cpu_rows = 0;  // beside a device: SessionOptions::cpu_rows
  std::filesystem::path spill = {};
};

inline SessionOptions options_for(const std::filesystem::path& model, const How& how) {
  SessionOptions options;
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
  options.quantize.scheme = *find_quant_scheme(how.scheme);
  if (how.norms_too) options.quantize.roles.insert(ParamRole::norm);
  return options;
}

// A session for prompts of at most `prompt` tokens and sequences of at most `tokens`.
inline std::unique_ptr<Session> loaded(const std::filesystem::path& model, int64_t prompt,
                                       int64_t tokens, const How& how) {
  auto session = std::make_unique<Session>(options_for(model, how));
  session->place(session->run_shape(tokens, prompt, prompt));
  LoadProgress progress;
  session->load(progress, {});
  return session;
}

// A session for prompts of a golden file and the tokens after each.
inline std::unique_ptr<Session> loaded(const std::filesystem::path& model,
                                       std::span<const Golden> goldens, const How& how) {
  int64_t prompt = 0, tokens = 0;
  for (const Golden& g : goldens) {
    prompt = std::max(prompt, std::ssize(g.ids));
    tokens = std::max(tokens, std::ssize(g.ids) + std::ssize(g.greedy));
  }
  return loaded(model, prompt, tokens, how);
}

// A prompt on a session of its own.
inline Outcome run_model(const std::filesystem::path& model, const std::vector<int32_t>& prompt,
                         int64_t new_tokens, const How& how) {
  const int64_t length = std::ssize(prompt);
  auto session = loaded(model, length, length + new_tokens, how);
  Outcome result = run_prompt(*session, prompt, new_tokens, how.chunk);
  if (how.check != nullptr) how.check(*session);
  return result;
}

}  // namespace sluice::test
