// The bytes of all tokens of a vocabulary, as tries in one pass's order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/text/tokenizer.h"

namespace sluice::grammar {

// A trie in preorder: a node's children follow it, and whoever passes over one passes to `end`.
class TokenTrie {
 public:
  struct Node {
    uint32_t end = 0;    // the first node that is not below this one
    uint32_t ids = 0;    // of the tokens that end here: [ids, the next node's ids)
    uint16_t depth = 0;  // bytes from the root, which is not in the list
    uint8_t byte = 0;
  };
  struct Token {
    std::string bytes;  // not empty
    int32_t id = 0;
  };

  TokenTrie() = default;
  explicit TokenTrie(std::vector<Token> tokens);

  // The last one has no byte and ends the list.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> ids() const { return ids_; }
  uint32_t longest() const { return longest_; }  // bytes of a token
  uint64_t bytes() const {                       // of memory
    return nodes_.capacity() * sizeof(Node) + ids_.capacity() * sizeof(int32_t);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
  uint32_t longest_ = 0;
};

// Special tokens have a text of their own, which begins with a byte that no UTF-8 has: grammars
// match them where they name them, and nowhere else.
inline constexpr uint8_t kSpecialMark = 0xFF;
inline std::string special_text(std::string_view token) {
  return std::string(1, static_cast<char>(kSpecialMark)).append(token);
}

// Immutable; threads may share it.
class TokenTable {
 public:
  // Takes the ids [0, vocab_size) that have a text. A token with bytes that are not UTF-8 counts as
  // having none. Error(refused) for tokenizers whose tokens have another text before the end than
  // at it.
  TokenTable(const Tokenizer& tokenizer, int64_t vocab_size);
  // Takes these texts by id; an empty one is not matched.
  explicit TokenTable(const std::vector<std::string>& tokens);

  int64_t vocab_size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  // Returns what a token adds to a text; `first` where none came before it. Empty where it has
  // none.
  std::string_view text(int32_t id, bool first) const;

  // Tokens wherever they stand; and those whose text is another, or is one only, at the beginning.
  const TokenTrie& anywhere() const { return anywhere_; }
  const TokenTrie& at_start() const { return at_start_; }
  // Ascending: those of anywhere() that are not so at the beginning.
  std::span<const int32_t> not_at_start() const { return not_at_start_; }
  uint32_t longest() const { return std::max(anywhere_.longest(), at_start_.longest()); }
  uint64_t bytes() const;  // of memory

 private:
  void add(const std::string& text);

  std::string texts_;
  std::vector<uint32_t> offsets_;  // of each id in texts_, and the end
  TokenTrie anywhere_;
  TokenTrie at_start_;
  std::vector<int32_t> not_at_start_;
  std::vector<std::pair<int32_t, std::string>> first_texts_;  // of these, by id
};

}  // namespace sluice::grammar
