// Tokens that are found in the text before the model sees it: the added_tokens of tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/text/normalizer.h"
#include "src/text/vocabulary.h"

namespace sluice {

struct AddedToken {
  std::string content;
  std::string normalized_content;  // what is looked for, and what decoding gives
  int32_t id;
  bool single_word;  // matches only where no word character touches it
  bool lstrip;       // takes the white space before it along
  bool rstrip;       // and the white space after it
  bool normalized;   // is looked for in the normalized text, in normalized form
  bool special;      // can be left out when decoding
};

class AddedTokens {
 public:
  // A part of a text: an added token, or text between two.
  struct Segment {
    std::string_view text;  // empty for a token
    int32_t id;             // -1 for text
  };

  // `config` is the array added_tokens, or null. A token that the model's vocabulary has keeps the
  // id that it has there; others come after it, in their order. Appends to `warnings` what is odd.
  // Throws Error(refused), which begins "tokenizer.json: ".
  static AddedTokens load(const Json& config, const Normalizer& normalizer,
                          const Vocabulary& vocabulary, std::vector<std::string>& warnings);

  const std::vector<AddedToken>& tokens() const { return tokens_; }  // by id
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;

  // Appends the segments of `text`, looking for the tokens that have normalized = true or those
  // that have not.
  void split(std::string_view text, bool normalized, std::vector<Segment>& segments) const;

 private:
  // The tokens to look for, sorted by content.
  struct Matcher {
    std::vector<uint32_t> order;         // indices of tokens_
    std::array<bool, 256> first_byte{};  // whether a token begins with this byte
  };

  void prepare_matchers();
  const AddedToken* longest_at(const Matcher& matcher, std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::array<Matcher, 2> matchers_;  // for normalized = false, true
};

}  // namespace sluice
