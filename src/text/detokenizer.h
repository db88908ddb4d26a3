// Token ids to text, one at a time, as they are generated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace sluice {

class Detokenizer {
 public:
  // Tokens for single bytes ("<0xFF>") side by side that are not UTF-8 together become a U+FFFD for
  // each, also those that were characters until the last one came. Nearly no text has such tokens;
  // one that is shown as it is generated need not wait for their end.
  enum class Gives : uint8_t { early, what_is_final };

  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,  // tokenizer must outlive this
              Gives gives = Gives::early);

  // The text that is certain once `id` is known. Empty while the text so far ends within a
  // character, or with U+FFFD, which may be the beginning of one that tokens split: the same steps
  // as Hugging Face's DecodeStream. Ids without a token add nothing. The time does not depend on
  // what came before.
  std::string add(int32_t id);

  // Returns the rest that has been held back; there are no more tokens. All results together are
  // Tokenizer::decode, but for text that was given early.
  std::string finish();

 private:
  // A run of tokens for single bytes.
  struct Run {
    Utf8Decoder utf8;
    std::string text;    // that has not been given
    int64_t bytes = 0;   // of that, and of what is incomplete
    bool first = false;  // no token came before it
  };
  void add_byte(char byte);
  void end_run();
  void take(std::string_view token);
  void put(std::string text);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool early_;
  bool looks_ahead_;
  bool first_ = true;          // no token has come yet
  std::string_view previous_;  // of the tokens that are no bytes
  Run run_;
  std::string if_last_;  // of a token whose text depends on it, what has not been put
  std::string if_not_last_;
  std::vector<int64_t> strips_;  // characters that may still be stripped from the beginning
  Utf8Decoder utf8_;
  std::string held_;  // complete characters that have not been given out
};

}  // namespace sluice
