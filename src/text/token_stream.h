// Token ids of a text that comes bit by bit, in memory that does not grow with the text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/units.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace sluice {

// Gives a text to the tokenizer's parts in blocks. Each keeps what it cannot decide yet: an added
// token or a character that has begun, characters that may still compose, the word or white space
// that a pattern has begun to match. A stretch that cannot be cut has to be held whole: a word as
// long as the text, say. It is refused if it is longer than kLongestStretch.
class TokenStream {
 public:
  // The most that it holds [bytes], without stretches that cannot be cut.
  static constexpr uint64_t kBytes = 256 * KiB;
  static constexpr uint64_t kLongestStretch = 16 * MiB;
  // Called with the bytes in all that the longest such stretch takes beside kBytes, before they are
  // taken, and kept; throws where there is no room for them.
  using Reserve = std::function<void(uint64_t bytes)>;

  // `tokenizer` must outlive this.
  TokenStream(const Tokenizer& tokenizer, bool add_special_tokens, Reserve reserve = {});

  // Appends the ids that are certain: all together those of Tokenizer::encode() for the whole text.
  // Throws Error(refused) for a text that the tokenizer cannot take.
  void add(std::string_view bytes, std::vector<int32_t>& ids);
  // All that is left, and what comes behind the text; `bytes` are its last.
  void finish(std::string_view bytes, std::vector<int32_t>& ids);

 private:
  void add_block(std::string_view bytes, bool last, std::vector<int32_t>& ids);
  void normalize(std::string_view text, bool last, std::vector<int32_t>& ids);
  void cut(std::string_view text, bool last, std::vector<int32_t>& ids);
  void make_room();

  const Tokenizer& tokenizer_;
  Reserve reserve_;
  uint64_t asked_ = 0;           // of it
  std::vector<int32_t> before_;  // special tokens that come next
  std::vector<int32_t> after_;
  Utf8Decoder decoder_;
  std::string valid_;
  AddedTokens::Stream added_;  // in the text as it is
  bool inside_ = false;        // of text between two of them
  NormalizerStream normalizer_;
  std::string normalized_;
  AddedTokens::Stream added_normalized_;
  bool inside_normalized_ = false;
  PreTokenizerStream pre_tokenizer_;
  std::variant<Bpe::Work, Unigram::Work, WordLevel::Work, WordPiece::Work>
      work_;  // of the tokenizer's model
  std::vector<AddedTokens::Segment> segments_;
  std::vector<AddedTokens::Segment> normalized_segments_;
};

}  // namespace sluice
