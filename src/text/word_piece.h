// WordPiece: a word is written with the longest token that it begins with, the rest of it likewise,
// as Hugging Face's model type "WordPiece".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/pre_tokenizer.h"
#include "src/text/tokenizer_file.h"
#include "src/text/trie.h"
#include "src/text/vocabulary.h"

namespace sluice {

class WordPiece {
 public:
  // Throws Error(refused), which begins "tokenizer.json: ".
  static WordPiece load(const TokenizerFile& file);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // The word that has begun. One without tokens is unknown as a whole, so that it waits for its
  // end.
  struct Work {
    std::string word;
    int64_t characters = 0;
    bool is_long = false;  // too long: it is unknown

    uint64_t held() const { return word.size(); }
  };

  // Appends the ids that are certain, in order. Error(refused) for a word that needs an unk_token
  // which is not in the vocabulary.
  void encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const;

 private:
  explicit WordPiece(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  void add_part(std::string_view part, Work& work) const;
  void end_word(Work& work, std::vector<int32_t>& ids) const;
  bool split(std::string_view word, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  Trie trie_;
  std::optional<Trie::Node> inside_;  // the prefix of tokens that go on with a word
  int64_t longest_word_ = 100;        // characters
  std::string unknown_;
};

}  // namespace sluice
