// The bytes that each token adds to a decoded text: the decoder of tokenizer.json.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/json.h"

namespace sluice {

// Without a decoder, tokens are put side by side with a space between.
struct JoinWithSpaces {};

// The token is written in the byte alphabet.
struct ByteLevelBytes {};

// From here on the steps see the whole text.
struct Fuse {};

// "<0x0A>" is one byte.
struct ByteFallback {};

// SentencePiece's spaces.
struct ReplaceText {
  std::string text;  // not empty
  std::string by;
};

// Removes up to `most` times `text` from the beginning: of every token, or of the whole text.
struct StripStart {
  std::string text;  // not empty
  int64_t most = 0;
  bool whole_text = false;  // after Fuse
};

class Decoder {
 public:
  using Step =
      std::variant<JoinWithSpaces, ByteLevelBytes, ByteFallback, Fuse, ReplaceText, StripStart>;

  // `config` is the value of decoder, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static Decoder load(const Json& config);

  // The bytes that a token adds; `first` when no token came before it. Together they need not be
  // valid UTF-8: the caller replaces invalid parts.
  std::string bytes(std::string_view token, bool first) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace sluice
