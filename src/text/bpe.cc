#include "src/text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "src/base/error.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

constexpr std::string_view kFile = "tokenizer.json";

// An option that changes the ids and that we do not implement.
void refuse_affix(const JsonFields& model, const char* key) {
  if (!model.string_or(key, "").empty()) {
    fail(ErrorKind::refused, "{}: {} \"{}\" is not supported for BPE", kFile, key,
         model.string(key));
  }
}

}  // namespace

Bpe Bpe::load(const TokenizerFile& file) {
  if (!file.has_vocabulary) {
    fail(ErrorKind::refused, "{}: model.vocab must be an object of tokens and ids", kFile);
  }
  if (!file.has_merges) fail(ErrorKind::refused, "{}: model.merges must be an array", kFile);
  Bpe bpe(Vocabulary(file.tokens, file.ids, kFile));
  bpe.load_options(JsonFields(file.config.at("model"), "tokenizer.json: model"));
  bpe.load_merges(file.merges);
  for (char32_t c = 0; c < bpe.small_characters_.size(); ++c) {
    std::string character;
    append_utf8(c, character);
    bpe.small_characters_[c] = bpe.vocabulary_.find(character).value_or(-1);
  }
  return bpe;
}

void Bpe::load_options(const JsonFields& model) {
  refuse_affix(model, "continuing_subword_prefix");
  refuse_affix(model, "end_of_word_suffix");
  if (model.number_or("dropout", 0) != 0) {
    fail(ErrorKind::refused, "{}: BPE dropout is not supported; it is for training", kFile);
  }
  ignore_merges_ = model.boolean_or("ignore_merges", false);
  fuse_unknown_ = model.boolean_or("fuse_unk", false);
  byte_fallback_ = model.boolean_or("byte_fallback", false);
  if (model.has("unk_token")) {
    std::string token = model.string("unk_token");
    unknown_ = vocabulary_.find(token).value_or(-1);
    if (unknown_ < 0) missing_unknown_ = std::move(token);
  }
  for (int byte = 0; byte < 256; ++byte) {
    auto id = byte_fallback_ ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)) : std::nullopt;
    byte_tokens_[static_cast<size_t>(byte)] = id.value_or(-1);
  }
}

void Bpe::load_merges(const StringList& merges) {
  size_t count = merges.size() / 2;
  merges_.reserve(count);
  slots_.assign(std::bit_ceil(count + count / 2 + 1), -1);
  auto id_of = [&](size_t rank, std::string_view token) {
    auto id = vocabulary_.find(token);
    if (!id) {
      fail(ErrorKind::refused, "{}: merge {} names token '{}', which is not in the vocabulary",
           kFile, rank, token);
    }
    return *id;
  };
  std::string merged;
  for (size_t rank = 0; rank < count; ++rank) {
    merged.assign(merges[2 * rank]).append(merges[2 * rank + 1]);
    merges_.push_back(
        {id_of(rank, merges[2 * rank]), id_of(rank, merges[2 * rank + 1]), id_of(rank, merged)});
    // Of a pair that is listed twice the later place counts.
    slots_[pair_slot(merges_.back().left, merges_.back().right)] = static_cast<int32_t>(rank);
  }
}

// Where the pair is in slots_, or the empty slot where it would be.
size_t Bpe::pair_slot(int32_t left, int32_t right) const {
  uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  size_t mask = slots_.size() - 1;
  uint64_t hash = key * 0x9E3779B97F4A7C15u;  // its high half depends on all bits of the key
  size_t slot = (hash >> 32 ^ hash) & mask;
  while (slots_[slot] >= 0) {
    const Merge& merge = merges_[static_cast<size_t>(slots_[slot])];
    if (merge.left == left && merge.right == right) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Bpe::encode(const Pieces& pieces, std::vector<int32_t>& ids) const {
  Work work;
  for (TextSpan span : pieces.spans) encode_piece(span.of(pieces.text), work, ids);
}

void Bpe::encode_piece(std::string_view piece, Work& work, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (auto id = vocabulary_.find(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  split_into_symbols(piece, work);
  merge(work);
  for (const Symbol& symbol : work.symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

int32_t Bpe::character_id(std::string_view character) const {
  char32_t c = utf8_char_at(character, 0).code_point;
  if (c < small_characters_.size()) return small_characters_[c];
  return vocabulary_.find(character).value_or(-1);
}

// One symbol for each character that is a token. Others: their bytes' tokens, if all exist; else
// the unknown token, once for a run where fuse_unk is set; else nothing.
void Bpe::split_into_symbols(std::string_view piece, Work& work) const {
  work.symbols.clear();
  auto add = [&](int32_t id) {
    int32_t index = static_cast<int32_t>(work.symbols.size());
    work.symbols.push_back({id, index - 1, index + 1});
  };
  bool unknown_pending = false;
  for (size_t at = 0; at < piece.size();) {
    std::string_view character =
        piece.substr(at, static_cast<size_t>(utf8_char_at(piece, at).bytes));
    at += character.size();
    int32_t id = character_id(character);
    if (id >= 0) {
      if (unknown_pending) add(unknown_);
      unknown_pending = false;
      add(id);
      continue;
    }
    auto byte_token = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
    if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                      [&](char byte) { return byte_token(byte) >= 0; })) {
      // An unknown character before it stays pending: it comes after these bytes, as in the
      // library whose ids we reproduce.
      for (char byte : character) add(byte_token(byte));
      continue;
    }
    if (missing_unknown_) {
      fail(ErrorKind::refused,
           "{}: unk_token '{}' is not in the vocabulary, and the text has {:?}, which needs it",
           kFile, *missing_unknown_, character);
    }
    if (unknown_ < 0) continue;
    if (unknown_pending && !fuse_unknown_) add(unknown_);
    unknown_pending = true;
  }
  if (unknown_pending) add(unknown_);
  if (!work.symbols.empty()) work.symbols.back().next = -1;
}

// Queues the pair of a symbol and its successor, if it can merge.
void Bpe::queue_pair(int32_t left, Work& work) const {
  const Symbol& symbol = work.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  int32_t rank = rank_of(symbol.id, work.symbols[static_cast<size_t>(symbol.next)].id);
  if (rank < 0) return;
  work.heap.push_back(uint64_t{static_cast<uint32_t>(rank)} << 32 | static_cast<uint32_t>(left));
  std::push_heap(work.heap.begin(), work.heap.end(), std::greater<>());
}

// Merges the pair of the lowest rank, the leftmost of several, until none is left. O(n log n).
void Bpe::merge(Work& work) const {
  std::vector<Symbol>& symbols = work.symbols;
  work.heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) queue_pair(static_cast<int32_t>(i), work);
  while (!work.heap.empty()) {
    std::pop_heap(work.heap.begin(), work.heap.end(), std::greater<>());
    uint64_t top = work.heap.back();
    work.heap.pop_back();
    int32_t rank = static_cast<int32_t>(top >> 32);
    int32_t at = static_cast<int32_t>(top & 0xFFFFFFFF);
    Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (rank_of(left.id, right.id) != rank) continue;  // one of the two has changed since
    left.id = merges_[static_cast<size_t>(rank)].merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    if (left.previous >= 0) queue_pair(left.previous, work);
    queue_pair(at, work);
  }
}

}  // namespace sluice
