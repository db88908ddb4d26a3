// Which architectures there are. A family is one short file that knows its config.json and its
// checkpoint's names; registry.cc lists them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/models/decoder.h"

namespace sluice {

struct Family {
  std::string_view architecture;  // as config.json names it
  DecoderConfig (*parse)(const JsonFields& config);
  // Patterns ('*' matches anything) of checkpoint tensors that the family knows and does not need.
  // They are listed, not read.
  std::vector<std::string_view> ignorable;
};

std::span<const Family> families();
// Throws Error(refused) that names the architecture and the supported ones.
const Family& find_family(std::string_view architecture);

std::vector<Family> llama_families();    // llama.cc
std::vector<Family> mistral_families();  // mistral.cc

// A model as its directory describes it: placeholders only.
struct Model {
  ModelFiles files;
  std::unique_ptr<CausalLM> root;
  std::vector<std::string>
      ignorable;  // patterns, the family's and those that follow from the configuration
};
Model build_model(const std::filesystem::path& directory, Rank rank);

}  // namespace sluice
