// Tokens that are found in the text before the model sees it: the added_tokens of tokenizer.json.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/text/normalizer.h"
#include "src/text/vocabulary.h"

namespace sluice {

struct AddedToken {
  std::string content;
  std::string normalized_content;  // searched in texts, and the result of decoding
  int32_t id;
  bool single_word;  // matches only where no word character touches it
  bool lstrip;       // takes the white space before it along
  bool rstrip;       // and the white space after it
  bool normalized;   // is looked for in the normalized text, in normalized form
  bool special;      // can be left out when decoding
  bool in_text;      // is looked for; a converted vocabulary may have others
};

class AddedTokens {
 public:
  // A part of a text: an added token, or of what lies between two, which may come in several parts.
  struct Segment {
    std::string_view text;  // empty for a token
    int32_t id;             // -1 for text
  };
  class Stream;

  // `config` is the array added_tokens, or null. A token that the model's vocabulary has keeps the
  // id that it has there; others come after it, in their order. Appends to `warnings` what is odd.
  // Throws Error(refused), which begins "tokenizer.json: ".
  static AddedTokens load(const Json& config, const Normalizer& normalizer,
                          const Vocabulary& vocabulary, std::vector<std::string>& warnings);

  const std::vector<AddedToken>& tokens() const { return tokens_; }  // by id
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;

 private:
  // The tokens to look for, sorted by content.
  struct Matcher {
    std::vector<uint32_t> order;         // indices of tokens_
    std::array<bool, 256> first_byte{};  // whether a token begins with this byte
    bool lstrip = false;                 // a token has it
  };
  struct Candidate {
    const AddedToken* token;  // null: none
    bool open;                // the text ends within one that may be longer
  };

  void prepare_matchers();
  Candidate longest_at(const Matcher& matcher, std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::array<Matcher, 2> matchers_;  // for normalized = false, true
};

// Finds tokens in a text that comes bit by bit.
class AddedTokens::Stream {
 public:
  // Finds those of `tokens` whose `normalized` is as given. `tokens` must outlive this.
  Stream(const AddedTokens& tokens, bool normalized)
      : tokens_(tokens), matcher_(tokens.matchers_[normalized]) {}

  // Appends the segments that are certain, whatever comes next; with `last`, all that is left, and
  // the next call begins a text. The views hold until the next call, and as long as `text`.
  void add(std::string_view text, bool last, std::vector<Segment>& segments);

  size_t held() const { return held_.size(); }  // bytes

 private:
  void find(bool last, std::vector<Segment>& segments);
  bool is_certain(const AddedToken& token, size_t end, bool last) const;
  void take(const AddedToken& token, size_t begin, size_t end, std::vector<Segment>& segments);
  size_t certain_text(size_t searched) const;

  const AddedTokens& tokens_;
  const Matcher& matcher_;
  std::string held_;  // from the character before what is not certain yet
  // Offsets into it.
  size_t done_ = 0;        // goes with the next call
  size_t at_ = 0;          // where the search stands
  size_t text_begin_ = 0;  // of the text that no segment covers yet
  size_t enough_ = 0;      // how long it has to be for the search to go on
};

}  // namespace sluice
