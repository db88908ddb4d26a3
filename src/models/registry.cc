#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "src/base/error.h"
#include "src/models/families.h"

namespace sluice {

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list;
    for (auto* families : {llama_families, mistral_families})
      std::ranges::copy(families(), std::back_inserter(list));
    return list;
  }();
  return all;
}

const Family& find_family(std::string_view architecture) {
  std::vector<std::string_view> known;
  for (const Family& f : families()) {
    if (f.architecture == architecture) return f;
    known.push_back(f.architecture);
  }
  fail(ErrorKind::refused,
       "config.json: architectures names {}, which is not supported; these are: {}", architecture,
       fmt::join(known, ", "));
}

Model build_model(const std::filesystem::path& directory, Rank rank) {
  Model model;
  model.files = read_model_files(directory);
  const Family& family = find_family(model.files.architecture);
  DecoderConfig config = family.parse(JsonFields(model.files.config, "config.json"));
  model.ignorable.assign(family.ignorable.begin(), family.ignorable.end());
  if (config.tie_word_embeddings) model.ignorable.push_back("lm_head.weight");
  model.root = std::make_unique<CausalLM>(std::move(config), rank);
  return model;
}

}  // namespace sluice
