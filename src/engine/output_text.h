// The text of a continuation as it becomes certain: whole characters, and nothing that might turn
// out to begin a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/text/detokenizer.h"

namespace sluice {

class OutputText {
 public:
  // The tokenizer outlives this.
  OutputText(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<std::string> stops)
      : detokenizer_(tokenizer, skip_special_tokens), stops_(std::move(stops)) {}

  // What can be shown with the next token, and at the end of all.
  std::string add(int32_t id);
  std::string finish();
  bool stopped() const { return stopped_; }  // before a stop string: nothing comes after it

 private:
  std::string take(bool at_end);

  Detokenizer detokenizer_;
  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace sluice
