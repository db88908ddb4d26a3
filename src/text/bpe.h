// Byte-pair encoding with a fixed list of merges (Sennrich et al., 2016), as Hugging Face's model
// type "BPE".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/pre_tokenizer.h"
#include "src/text/tokenizer_file.h"
#include "src/text/vocabulary.h"

namespace sluice {

class Bpe {
 public:
  // Throws Error(refused), which begins "tokenizer.json: ".
  static Bpe load(const TokenizerFile& file);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the ids of each piece, in order. Error(refused) for a character that needs an unk_token
  // which is not in the vocabulary.
  void encode(const Pieces& pieces, std::vector<int32_t>& ids) const;

 private:
  // A piece in the making: a doubly linked list in one array, and the pairs that may merge.
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous;
    int32_t next;
  };
  struct Work {
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol, smallest first
  };

  explicit Bpe(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  void load_options(const JsonFields& model);
  void load_merges(const StringList& merges);
  void encode_piece(std::string_view piece, Work& work, std::vector<int32_t>& ids) const;
  void split_into_symbols(std::string_view piece, Work& work) const;
  int32_t character_id(std::string_view character) const;
  void merge(Work& work) const;
  void queue_pair(int32_t left, Work& work) const;
  size_t pair_slot(int32_t left, int32_t right) const;
  int32_t rank_of(int32_t left, int32_t right) const { return slots_[pair_slot(left, right)]; }

  Vocabulary vocabulary_;
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
  };
  std::vector<Merge> merges_;   // by rank
  std::vector<int32_t> slots_;  // hash table of ranks, open addressing; -1: empty

  // Ids of the characters below U+0200, which byte-level vocabularies are made of; -1: none.
  std::array<int32_t, 0x200> small_characters_{};
  std::array<int32_t, 256> byte_tokens_{};  // "<0x00>" ...; all -1 unless byte_fallback
  int32_t unknown_ = -1;
  std::optional<std::string> missing_unknown_;  // an unk_token that is no token: not to be needed
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace sluice
