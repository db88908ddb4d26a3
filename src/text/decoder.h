// The bytes that each token adds to a decoded text: the decoder of tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/pattern.h"

namespace sluice {

// The default without a decoder: tokens side by side, with a space between.
struct JoinWithSpaces {};

// The token is written in the byte alphabet.
struct ByteLevelBytes {};

// SentencePiece's spaces.
struct ReplaceText {
  std::string text;  // not empty
  std::string by;
};

struct ReplaceMatches {
  Pattern pattern;
  std::string by;
};

// Removes `text` from the beginning, at most `start` times, and from the end.
struct StripEnds {
  std::string text;  // not empty
  int64_t start = 0;
  int64_t stop = 0;
};

// A space before each token, unless it begins with `prefix`, which goes on with a word.
struct JoinWords {
  std::string prefix;
  bool clean_up;  // no space before punctuation and English contractions
};

// `text` is a space; in the first token it may be nothing.
struct Spaces {
  std::string text;  // not empty
  bool in_first;
};

// `suffix` is a space, in the last token nothing.
struct WordEnds {
  std::string suffix;  // not empty
};

// Decoding of speech: a token that repeats the one before it is nothing, and neither is `pad`;
// `delimiter` is a space.
struct Repeats {
  std::string pad;        // not empty
  std::string delimiter;  // not empty
  bool clean_up;          // as of JoinWords; without it delimiters stay
};

class Decoder {
 public:
  using Step = std::variant<JoinWithSpaces, ByteLevelBytes, ReplaceText, ReplaceMatches, StripEnds,
                            JoinWords, Spaces, WordEnds, Repeats>;
  // A token's place in the text.
  struct Place {
    bool first;
    bool last;
    bool repeats = false;  // the token before it is the same
  };

  // `config` is the value of decoder, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static Decoder load(const Json& config);

  // Returns the bytes that a token adds. Together they need not be valid UTF-8: the caller replaces
  // invalid parts. Text that is stripped from the beginning of a whole text is not stripped here.
  std::string bytes(std::string_view token, Place place) const;
  // A token for one byte, where such tokens are known: "<0x0A>".
  std::optional<char> byte(std::string_view token) const;
  // The text of a run of such tokens.
  std::string run(std::string text, Place place) const;
  // Returns whether the bytes of a token depend on whether it is the last.
  bool looks_ahead() const;
  // These are taken off the beginning of the text.
  const std::vector<StripEnds>& text_start() const { return text_start_; }

 private:
  friend struct DecoderLoader;
  std::string apply(std::string bytes, size_t from, size_t to, Place place) const;

  std::vector<Step> steps_;
  std::optional<size_t> byte_fallback_;  // the steps before which runs of bytes become text
  std::optional<size_t> fused_;          // the steps before which all tokens become one
  std::vector<StripEnds> text_start_;
};

}  // namespace sluice
