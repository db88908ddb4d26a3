// A token for each word, or the unknown one, as Hugging Face's model type "WordLevel".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/pre_tokenizer.h"
#include "src/text/tokenizer_file.h"
#include "src/text/vocabulary.h"

namespace sluice {

// The id of a word that is no token. Error(refused) where `unknown` is none either.
int32_t unknown_id(const Vocabulary& vocabulary, std::string_view unknown);

class WordLevel {
 public:
  // Throws Error(refused), which begins "tokenizer.json: ".
  static WordLevel load(const TokenizerFile& file);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // The word that has begun, as far as it may be a token.
  struct Work {
    std::string word;

    uint64_t held() const { return word.size(); }
  };

  // Appends the ids that are certain, in order. Error(refused) for a word that needs an unk_token
  // which is not in the vocabulary.
  void encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const;

 private:
  explicit WordLevel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  Vocabulary vocabulary_;
  size_t longest_ = 0;  // token, bytes
  std::string unknown_;
};

}  // namespace sluice
