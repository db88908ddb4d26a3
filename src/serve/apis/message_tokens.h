// The tokens that a message's text is made of, among those of thoughts, tags and calls.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/engine/logprobs.h"
#include "src/serve/apis/chat_parts.h"
#include "src/serve/apis/token_text.h"

namespace sluice {

class MessageTokens {
 public:
  // The tokenizer may be null, else it outlives this.
  MessageTokens(const Tokenizer* tokenizer, bool skip_special_tokens)
      : offsets_(tokenizer, skip_special_tokens, 0) {}

  // Takes tokens of an answer as they come, before the parts of their text.
  void add(std::span<const TokenLogprobs> tokens, std::string_view text);
  // Returns the tokens of a message's text: all that came since the last part, and where the
  // message `begins` with it, those of the tags before it left out.
  std::vector<TokenLogprobs> take(std::string_view text, bool begins);
  // Forgets what came since the last part: it is no message's.
  void drop() { waiting_.clear(); }

 private:
  struct Token {
    int64_t begin = 0;  // in the answer's text, characters
    TokenLogprobs logprobs;
  };
  TextOffsets offsets_;
  int64_t end_ = 0;  // of the text that came
  std::vector<Token> waiting_;
};

// Returns the tokens of a whole answer's message.
std::vector<TokenLogprobs> message_tokens(const ChatForm& form, const RequestResult& result,
                                          const Tokenizer* tokenizer, bool skip_special_tokens);

}  // namespace sluice
