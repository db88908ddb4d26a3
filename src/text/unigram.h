// Unigram language model (Kudo, 2018): of all ways to write a piece with tokens the one with the
// highest sum of scores, as Hugging Face's model type "Unigram" finds it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/pre_tokenizer.h"
#include "src/text/tokenizer_file.h"
#include "src/text/trie.h"
#include "src/text/vocabulary.h"

namespace sluice {

class Unigram {
 public:
  // Throws Error(refused), which begins "tokenizer.json: ".
  static Unigram load(const TokenizerFile& file);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // The best way to a place in the piece.
  struct Place {
    double score = 0;      // of all tokens on it, from the beginning of the piece
    int32_t from = kNone;  // where its last token begins
    int32_t id = kNone;
  };
  static constexpr int32_t kNone = -1;
  static constexpr size_t kCutAt = 4096;  // bytes: longer pieces are decided part by part
  // State of the piece that has begun. Offsets are into its text.
  struct Work {
    std::string text;                               // from where nothing is decided
    std::vector<Place> places;                      // by offset, the end of the text included
    size_t reached = 0;                             // all tokens that begin before are looked at
    size_t furthest = 0;                            // the longest of them ends here
    size_t enough = kCutAt;                         // bytes of text, for the next attempt to decide
    std::vector<std::pair<int32_t, int32_t>> path;  // working space: offsets and ids
    std::string unknown;           // characters that the unknown token stands for, up to a limit
    bool unknown_pending = false;  // it comes next
    std::vector<int32_t> unknown_bytes;  // or these tokens for its bytes

    uint64_t held() const { return text.size() + unknown_bytes.size(); }
  };

  // Appends the ids that are certain, in order. Error(refused) for a character that needs an
  // unknown token where there is none.
  void encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const;

 private:
  explicit Unigram(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  void load_scores(const TokenizerFile& file);
  void add_part(std::string_view part, bool last, Work& work, std::vector<int32_t>& ids) const;
  void advance(Work& work, bool last) const;
  bool extend(Work& work, bool last) const;
  double sum(double a, double b) const;
  size_t decided(const Work& work) const;
  void take(size_t end, Work& work, std::vector<int32_t>& ids) const;
  void add_unknown(std::string_view text, Work& work) const;
  void end_unknown(Work& work, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  Trie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  int32_t unknown_ = kNone;
  size_t longest_ = 0;                      // token, bytes
  std::array<int32_t, 256> byte_tokens_{};  // "<0x00>" ...; all kNone unless byte_fallback
  bool byte_fallback_ = false;
  bool single_precision_ = false;
};

}  // namespace sluice
