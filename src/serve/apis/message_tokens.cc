#include "src/serve/apis/message_tokens.h"

#include <utility>

#include "src/text/utf8.h"

namespace sluice {
namespace {

// Returns the bytes of the first `characters` of a text.
size_t bytes_of(std::string_view text, int64_t characters) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80;
    if (begins && characters-- == 0) break;
  }
  return at;
}

}  // namespace

void MessageTokens::add(std::span<const TokenLogprobs> tokens, std::string_view text) {
  for (const TokenLogprobs& token : tokens)
    waiting_.push_back({offsets_.add(token.token.token_id), token});
  end_ += static_cast<int64_t>(character_count(text));
}

std::vector<TokenLogprobs> MessageTokens::take(std::string_view text, bool begins) {
  size_t first = 0;
  if (begins && !waiting_.empty()) {
    const int64_t from = end_ - static_cast<int64_t>(character_count(text));
    while (first + 1 < waiting_.size() && waiting_[first + 1].begin <= from) ++first;
  }
  std::vector<TokenLogprobs> taken;
  for (; first < waiting_.size(); ++first) taken.push_back(std::move(waiting_[first].logprobs));
  waiting_.clear();
  return taken;
}

// Each token's text is parsed alone, as if it were streamed: the parts do not depend on the pieces.
std::vector<TokenLogprobs> message_tokens(const ChatForm& form, const RequestResult& result,
                                          const Tokenizer* tokenizer, bool skip_special_tokens) {
  AnswerParser parser = whole_parser(form, result);
  TextOffsets offsets(tokenizer, skip_special_tokens, 0);
  std::vector<int64_t> begins;
  for (const TokenLogprobs& token : result.logprobs)
    begins.push_back(offsets.add(token.token.token_id));
  MessageTokens tokens(tokenizer, skip_special_tokens);
  std::vector<TokenLogprobs> message;
  std::string_view left = result.text;
  for (size_t i = 0; i < begins.size(); ++i) {
    const bool last = i + 1 == begins.size();
    const std::string_view piece =
        left.substr(0, last ? left.size() : bytes_of(left, begins[i + 1] - begins[i]));
    left.remove_prefix(piece.size());
    tokens.add({&result.logprobs[i], 1}, piece);
    for (const AnswerPart& part : parser.add(piece, last, last && is_cut(result))) {
      if (part.kind != AnswerPart::Kind::content) {
        tokens.drop();
      } else if (!part.text.empty()) {
        for (TokenLogprobs& taken : tokens.take(part.text, message.empty()))
          message.push_back(std::move(taken));
      }
    }
  }
  return message;
}

}  // namespace sluice
