// Byte-pair encoding with a fixed list of merges (Sennrich et al., 2016), as Hugging Face's model
// type "BPE".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

  static constexpr size_t kCutAt = 4096;  // symbols: longer pieces are merged part by part
  // A piece in the making: a doubly linked list in one array, and the pairs that may merge.
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous;
    int32_t next;
  };
  // State of the piece that has begun, and working space.
  struct Work {
    std::string piece;             // its text, while it may be a token as a whole
    bool is_long = false;          // it is none
    bool begun = false;            // it has a symbol
    std::string last;              // its last character, where one may be written in its own way
    bool unknown_pending = false;  // the unknown token comes next
    std::vector<int32_t> pending;  // its symbols, from where nothing before can merge with them
    size_t enough = kCutAt;        // symbols, for the next attempt to cut
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol, smallest first

    uint64_t held() const { return piece.size() + last.size() + pending.size(); }
  };

  // Appends the ids that are certain, in order. Error(refused) for a character that needs an
  // unk_token which is not in the vocabulary.
  void encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
    int32_t rank;
  };
  explicit Bpe(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  void load_options(const JsonFields& model);
  void load_merges(const TokenizerFile& file);
  void add_part(std::string_view part, Work& work, std::vector<int32_t>& ids) const;
  void end_piece(Work& work, std::vector<int32_t>& ids) const;
  void split_into_symbols(std::string_view part, Work& work, std::vector<int32_t>& ids) const;
  void add_characters(std::string_view part, bool last, Work& work,
                      std::vector<int32_t>& ids) const;
  void add_unknown(std::string_view symbol, std::string_view character, Work& work) const;
  int32_t character_id(std::string_view character) const;
  void cut(Work& work, std::vector<int32_t>& ids) const;
  void merge(std::span<const int32_t> symbols, Work& work, std::vector<int32_t>& ids) const;
  void queue_pair(int32_t left, Work& work) const;
  // Returns whether a merge may join a text that ends with one symbol and a text that begins with
  // the other. Never false if one can; now and then true if none can.
  bool may_join(int32_t left, int32_t right) const;
  size_t join_bit(int32_t left, int32_t right) const;
  std::string_view behind_prefix(int32_t id) const;
  size_t pair_slot(int32_t left, int32_t right) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;
  std::vector<int32_t> slots_;  // hash table of places in merges_, open addressing; -1: empty
  std::string prefix_;          // of all symbols of a piece but the first
  std::string suffix_;          // of the last
  std::vector<bool> joins_;     // by a hash of the characters on both sides of a merge
  size_t longest_ = 0;          // token, bytes

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
