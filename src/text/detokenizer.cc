#include "src/text/detokenizer.h"

#include <utility>

namespace sluice {

std::string Detokenizer::add(int32_t id) {
  if (!tokenizer_.has(id) || (skip_special_tokens_ && tokenizer_.is_special(id))) return {};
  utf8_.append(tokenizer_.bytes(id, first_), held_);
  first_ = false;
  if (utf8_.incomplete() || held_.ends_with(kReplacementCharacter)) return {};
  return std::exchange(held_, {});
}

std::string Detokenizer::finish() {
  utf8_.finish(held_);
  return std::exchange(held_, {});
}

}  // namespace sluice
