// Token ids to text, one at a time, as they are generated.
#pragma once

#include <cstdint>
#include <string>

#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace sluice {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)  // tokenizer must outlive this
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // The text that is certain once `id` is known. Empty while the text so far ends within a
  // character, or with U+FFFD, which may be the beginning of one that tokens split: the same steps
  // as Hugging Face's DecodeStream. Ids without a token add nothing. The time does not depend on
  // what came before.
  std::string add(int32_t id);

  // There are no more tokens: what has been held back. All results together are Tokenizer::decode.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool first_ = true;  // no token has come yet
  Utf8Decoder utf8_;
  std::string held_;  // complete characters that have not been given out
};

}  // namespace sluice
