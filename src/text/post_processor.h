// The special tokens around an encoded text: the post_processor of tokenizer.json.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "src/base/json.h"

namespace sluice {

// "TemplateProcessing" of a single sequence: ids before and after it.
struct SpecialTokenTemplate {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

class PostProcessor {
 public:
  using Step = std::variant<SpecialTokenTemplate>;

  // `config` is the value of post_processor, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static PostProcessor load(const Json& config);

  void add_special_tokens(std::vector<int32_t>& ids) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace sluice
