// Cuts a normalized text into the pieces that the model encodes one by one, and may rewrite them:
// the pre_tokenizer of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/pattern.h"

namespace sluice {

// Parts of one text, in order; what lies between them is dropped.
struct Pieces {
  std::string text;
  std::vector<TextSpan> spans;  // none is empty
};

// What becomes of the matches of a Split's pattern.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,              // each a piece of its own
  merged_with_previous,  // at the end of the piece before
  merged_with_next,      // at the beginning of the piece after
  contiguous,            // adjacent ones together are a piece
};

// "Split", and the types that are a Split by a fixed pattern.
struct Split {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;  // the pattern describes the pieces, not what is between them
};

// "ByteLevel": writes each piece in the byte alphabet.
struct ByteLevelAlphabet {};

// The part of "ByteLevel" that puts a space before each piece that has none.
struct PrefixSpace {};

class PreTokenizer {
 public:
  using Step = std::variant<Split, PrefixSpace, ByteLevelAlphabet>;

  // `config` is the value of pre_tokenizer, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static PreTokenizer load(const Json& config);

  Pieces split(std::string text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace sluice
