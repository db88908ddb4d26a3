#include "src/grammar/token_table.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"

namespace sluice::grammar {

namespace {

std::string plain(std::string text) {
  if (text.find(static_cast<char>(kSpecialMark)) != text.npos) text.clear();
  return text;
}

}  // namespace

TokenTrie::TokenTrie(std::vector<Token> tokens) {
  std::ranges::sort(tokens, [](const Token& a, const Token& b) {
    return std::pair<std::string_view, int32_t>(a.bytes, a.id) <
           std::pair<std::string_view, int32_t>(b.bytes, b.id);
  });
  std::string_view before;
  std::vector<uint32_t> open;  // the nodes above the next one
  for (const Token& token : tokens) {
    auto [end, in_before] = std::ranges::mismatch(token.bytes, before);
    auto common = static_cast<size_t>(end - token.bytes.begin());
    for (; open.size() > common; open.pop_back())
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t d = common; d < token.bytes.size(); ++d) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.ids = static_cast<uint32_t>(ids_.size()),
                        .depth = static_cast<uint16_t>(d + 1),
                        .byte = static_cast<uint8_t>(token.bytes[d])});
    }
    ids_.push_back(token.id);
    before = token.bytes;
    longest_ = std::max(longest_, static_cast<uint32_t>(token.bytes.size()));
  }
  for (uint32_t n : open) nodes_[n].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.ids = static_cast<uint32_t>(ids_.size())});
  nodes_.shrink_to_fit();
}

TokenTable::TokenTable(const Tokenizer& tokenizer, int64_t vocab_size) {
  if (tokenizer.decoder().looks_ahead()) {
    fail(ErrorKind::refused,
         "structured output needs tokens whose text does not depend on what follows, which this "
         "tokenizer has not");
  }
  constexpr size_t kLongest = std::numeric_limits<uint16_t>::max();
  std::vector<TokenTrie::Token> anywhere, at_start;
  offsets_.push_back(0);
  for (int32_t id = 0; id < vocab_size; ++id) {
    std::string text, first;
    if (tokenizer.has(id) && tokenizer.is_special(id)) {
      text = first = special_text(tokenizer.token(id));
    } else if (tokenizer.has(id)) {
      text = plain(tokenizer.bytes(id, false));
      first = plain(tokenizer.bytes(id, true));
    }
    if (text.size() > kLongest) text.clear();
    if (first.size() > kLongest) first.clear();
    add(text);
    if (first != text) {
      first_texts_.emplace_back(id, first);
      if (!text.empty()) not_at_start_.push_back(id);
      if (!first.empty()) at_start.push_back({first, id});
    }
    if (!text.empty()) anywhere.push_back({std::move(text), id});
  }
  anywhere_ = TokenTrie(std::move(anywhere));
  at_start_ = TokenTrie(std::move(at_start));
}

TokenTable::TokenTable(const std::vector<std::string>& tokens) {
  offsets_.push_back(0);
  std::vector<TokenTrie::Token> anywhere;
  for (size_t id = 0; id < tokens.size(); ++id) {
    add(tokens[id]);
    if (!tokens[id].empty()) anywhere.push_back({tokens[id], static_cast<int32_t>(id)});
  }
  anywhere_ = TokenTrie(std::move(anywhere));
  at_start_ = TokenTrie(std::vector<TokenTrie::Token>());
}

void TokenTable::add(const std::string& text) {
  texts_ += text;
  offsets_.push_back(static_cast<uint32_t>(texts_.size()));
}

std::string_view TokenTable::text(int32_t id, bool first) const {
  if (id < 0 || id >= vocab_size()) return {};
  if (first) {
    auto other =
        std::ranges::lower_bound(first_texts_, id, {}, &std::pair<int32_t, std::string>::first);
    if (other != first_texts_.end() && other->first == id) return other->second;
  }
  auto at = static_cast<size_t>(id);
  return std::string_view(texts_).substr(offsets_[at], offsets_[at + 1] - offsets_[at]);
}

uint64_t TokenTable::bytes() const {
  uint64_t bytes = sizeof(*this) + texts_.capacity() + offsets_.capacity() * sizeof(uint32_t) +
                   anywhere_.bytes() + at_start_.bytes() +
                   not_at_start_.capacity() * sizeof(int32_t);
  for (const auto& [id, text] : first_texts_)
    bytes += sizeof(std::pair<int32_t, std::string>) + text.size();
  return bytes;
}

}  // namespace sluice::grammar
