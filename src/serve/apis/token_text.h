// Tokens as the APIs write them.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/json.h"
#include "src/engine/logprobs.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace sluice {

// Returns a token's text as OpenAI writes it: a part of a character, which is no text alone, as
// bytes. A token without a text (no tokenizer, or an id that only the model has) is "token_id:N".
std::string token_text(int32_t id, const Tokenizer* tokenizer);
// {text: logprob} of the likeliest tokens; null for a token that has none.
Json top_logprobs_json(const TokenLogprobs* logprobs, const Tokenizer* tokenizer);
// A token as OpenAI's chats have it: {token, logprob, bytes, top_logprobs: [{token, logprob,
// bytes}]}.
OrderedJson token_logprobs_json(const TokenLogprobs& logprobs, const Tokenizer* tokenizer);

// Beginnings of tokens in their text, in characters (code points).
class TextOffsets {
 public:
  // The first token begins at `first`. The tokenizer may be null, else it outlives this.
  TextOffsets(const Tokenizer* tokenizer, bool skip_special_tokens, int64_t first)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens), next_(first) {}

  // Returns the offset of the next token.
  int64_t add(int32_t id);

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  Utf8Decoder utf8_;
  bool first_ = true;
  int64_t next_;
};

}  // namespace sluice
