#include "src/text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "src/base/error.h"
#include "src/text/utf8.h"

namespace sluice {

Bpe Bpe::load(const TokenizerFile& file) {
  file.need_vocabulary();
  if (!file.has_merges)
    fail(ErrorKind::refused, "{}: model.merges must be an array", kTokenizerFile);
  Bpe bpe(Vocabulary(file.tokens, file.ids, kTokenizerFile));
  bpe.load_options(JsonFields(file.config.at("model"), "tokenizer.json: model"));
  bpe.load_merges(file);
  for (int32_t id = 0; id < bpe.vocabulary_.end_id(); ++id)
    bpe.longest_ = std::max(bpe.longest_, bpe.vocabulary_.token(id).size());
  for (char32_t c = 0; c < bpe.small_characters_.size(); ++c) {
    std::string character;
    append_utf8(c, character);
    bpe.small_characters_[c] = bpe.vocabulary_.find(character).value_or(-1);
  }
  return bpe;
}

void Bpe::load_options(const JsonFields& model) {
  prefix_ = model.string_or("continuing_subword_prefix", "");
  suffix_ = model.string_or("end_of_word_suffix", "");
  if (model.number_or("dropout", 0) != 0) {
    fail(ErrorKind::refused, "{}: BPE dropout (for training) is not supported", kTokenizerFile);
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

void Bpe::load_merges(const TokenizerFile& file) {
  const StringList& merges = file.merges;
  size_t count = merges.size() / 2;
  merges_.reserve(count);
  slots_.assign(std::bit_ceil(count + count / 2 + 1), -1);
  joins_.assign(std::bit_ceil(2 * count + 1), false);
  auto id_of = [&](size_t place, std::string_view token) {
    auto id = vocabulary_.find(token);
    if (!id) {
      fail(ErrorKind::refused, "{}: merge {} names token '{}', which is not in the vocabulary",
           kTokenizerFile, place, token);
    }
    return *id;
  };
  std::string merged;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view left = merges[2 * i], right = merges[2 * i + 1];
    if (right.size() < prefix_.size()) {
      fail(ErrorKind::refused, "{}: merge {} joins token '{}', which is shorter than {} \"{}\"",
           kTokenizerFile, i, right, "continuing_subword_prefix", prefix_);
    }
    merged.assign(left).append(right.substr(prefix_.size()));
    const auto place = static_cast<int32_t>(i);
    merges_.push_back({.left = id_of(i, left),
                       .right = id_of(i, right),
                       .merged = id_of(i, merged),
                       .rank = file.merge_ranks.empty() ? place : file.merge_ranks[i]});
    // A pair that is listed twice has the later place.
    slots_[pair_slot(merges_.back().left, merges_.back().right)] = place;
    joins_[join_bit(merges_.back().left, merges_.back().right)] = true;
  }
}

// Returns where the pair is in slots_, or the empty slot where it would be.
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

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const int32_t place = slots_[pair_slot(left, right)];
  return place < 0 ? nullptr : &merges_[static_cast<size_t>(place)];
}

// Empty where the token is not longer, or has no character there.
std::string_view Bpe::behind_prefix(int32_t id) const {
  const std::string_view token = vocabulary_.token(id);
  const bool is_text =
      token.size() > prefix_.size() && (static_cast<uint8_t>(token[prefix_.size()]) & 0xC0) != 0x80;
  return is_text ? token.substr(prefix_.size()) : std::string_view();
}

// A token's text is that of the symbols that it was merged from, one after another. So what two
// neighbours among them have become can only merge where a merge has the last character of the one
// and the first of the other, behind its prefix, at its seam.
size_t Bpe::join_bit(int32_t left, int32_t right) const {
  std::string_view before = vocabulary_.token(left);
  std::string_view after = behind_prefix(right);
  if (before.empty() || after.empty()) return 0;  // may_join() does not ask
  uint64_t seam = uint64_t{utf8_char_before(before, before.size()).code_point} << 32 |
                  utf8_char_at(after, 0).code_point;
  return (seam * 0x9E3779B97F4A7C15u >> 32) & (joins_.size() - 1);
}

bool Bpe::may_join(int32_t left, int32_t right) const {
  const bool empty = vocabulary_.token(left).empty() || behind_prefix(right).empty();
  return empty || joins_[join_bit(left, right)];
}

void Bpe::encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const {
  pieces.each([&](std::string_view part, bool end) {
    add_part(part, work, ids);
    if (end) end_piece(work, ids);
  });
}

void Bpe::add_part(std::string_view part, Work& work, std::vector<int32_t>& ids) const {
  if (!ignore_merges_ || work.is_long) return split_into_symbols(part, work, ids);
  work.piece += part;
  work.is_long = work.piece.size() > longest_;
  if (!work.is_long) return;
  split_into_symbols(work.piece, work, ids);
  work.piece.clear();
}

void Bpe::end_piece(Work& work, std::vector<int32_t>& ids) const {
  if (ignore_merges_ && !work.is_long) {
    if (auto id = vocabulary_.find(work.piece)) {
      ids.push_back(*id);
    } else {
      split_into_symbols(work.piece, work, ids);
    }
    work.piece.clear();
  }
  if (!work.last.empty()) add_characters(std::exchange(work.last, {}), true, work, ids);
  if (work.unknown_pending) work.pending.push_back(unknown_);
  merge(work.pending, work, ids);
  work.pending.clear();
  work.unknown_pending = work.is_long = work.begun = false;
  work.enough = kCutAt;
}

// Merges what nothing behind it can change: up to the last seam that no merge crosses.
void Bpe::cut(Work& work, std::vector<int32_t>& ids) const {
  std::vector<int32_t>& pending = work.pending;
  size_t begin = pending.size() - 1;
  while (begin > 0 && may_join(pending[begin - 1], pending[begin])) --begin;
  if (begin > 0) {
    merge(std::span(pending).first(begin), work, ids);
    pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(begin));
  }
  work.enough = std::max(kCutAt, 2 * pending.size());
}

int32_t Bpe::character_id(std::string_view character) const {
  char32_t c = utf8_char_at(character, 0).code_point;
  if (c < small_characters_.size()) return small_characters_[c];
  return vocabulary_.find(character).value_or(-1);
}

// The last character of a piece may be written in its own way, and waits for the end.
void Bpe::split_into_symbols(std::string_view part, Work& work, std::vector<int32_t>& ids) const {
  if (suffix_.empty()) return add_characters(part, false, work, ids);
  if (part.empty()) return;
  const auto last = static_cast<size_t>(utf8_char_before(part, part.size()).bytes);
  const std::string before = std::exchange(work.last, part.substr(part.size() - last));
  add_characters(before, false, work, ids);
  add_characters(part.substr(0, part.size() - last), false, work, ids);
}

// One symbol for each character that is a token. Others: their bytes' tokens, if all exist; else
// the unknown token, once for a run where fuse_unk is set; else nothing.
void Bpe::add_characters(std::string_view part, bool last, Work& work,
                         std::vector<int32_t>& ids) const {
  const bool plain = prefix_.empty() && !last;
  std::string symbol;
  for (size_t at = 0; at < part.size();) {
    if (work.pending.size() >= work.enough) cut(work, ids);
    const std::string_view character =
        part.substr(at, static_cast<size_t>(utf8_char_at(part, at).bytes));
    at += character.size();
    if (!plain) {
      symbol.assign(work.begun ? prefix_ : "").append(character).append(last ? suffix_ : "");
      work.begun = true;
    }
    const int32_t id = plain ? character_id(character) : vocabulary_.find(symbol).value_or(-1);
    if (id < 0) {
      add_unknown(plain ? character : symbol, character, work);
      continue;
    }
    if (std::exchange(work.unknown_pending, false)) work.pending.push_back(unknown_);
    work.pending.push_back(id);
  }
}

void Bpe::add_unknown(std::string_view symbol, std::string_view character, Work& work) const {
  auto byte_token = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (byte_fallback_ &&
      std::ranges::all_of(symbol, [&](char byte) { return byte_token(byte) >= 0; })) {
    // An unknown character before it stays pending: it comes after these bytes, as in the library
    // whose ids we reproduce.
    for (char byte : symbol) work.pending.push_back(byte_token(byte));
    return;
  }
  if (missing_unknown_) {
    fail(ErrorKind::refused,
         "{}: unk_token '{}' is not in the vocabulary, and the text has {:?}, which needs it",
         kTokenizerFile, *missing_unknown_, character);
  }
  if (unknown_ < 0) return;
  if (work.unknown_pending && !fuse_unknown_) work.pending.push_back(unknown_);
  work.unknown_pending = true;
}

// Queues the pair of a symbol and its successor, if it can merge.
void Bpe::queue_pair(int32_t left, Work& work) const {
  const Symbol& symbol = work.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const Merge* merge = find_merge(symbol.id, work.symbols[static_cast<size_t>(symbol.next)].id);
  if (merge == nullptr) return;
  work.heap.push_back(uint64_t{static_cast<uint32_t>(merge->rank)} << 32 |
                      static_cast<uint32_t>(left));
  std::push_heap(work.heap.begin(), work.heap.end(), std::greater<>());
}

// Merges the pair of the lowest rank, the leftmost of several, until none is left. O(n log n).
void Bpe::merge(std::span<const int32_t> initial, Work& work, std::vector<int32_t>& ids) const {
  std::vector<Symbol>& symbols = work.symbols;
  symbols.clear();
  symbols.reserve(initial.size());
  auto count = static_cast<int32_t>(initial.size());
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({initial[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
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
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->rank != rank) continue;  // one of the two has changed since
    left.id = merge->merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    if (left.previous >= 0) queue_pair(left.previous, work);
    queue_pair(at, work);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace sluice
