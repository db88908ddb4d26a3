#include "src/text/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/text/utf8.h"

namespace sluice {

namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram Unigram::load(const TokenizerFile& file) {
  if (!file.has_scores)
    fail(ErrorKind::refused, "{}: model.vocab must be an array of tokens and scores",
         kTokenizerFile);
  // SentencePiece's own models have no such thing; files that were made of others do.
  const auto repeats =
      file.single_precision ? Vocabulary::Repeats::refused : Vocabulary::Repeats::last_counts;
  Unigram unigram(Vocabulary(file.tokens, file.ids, kTokenizerFile, repeats));
  JsonFields model(file.config.at("model"), "tokenizer.json: model");
  unigram.load_scores(file);
  const int64_t end = unigram.vocabulary_.end_id();
  if (model.has("unk_id"))
    unigram.unknown_ = static_cast<int32_t>(model.integer("unk_id", 0, end - 1));
  unigram.byte_fallback_ = model.boolean_or("byte_fallback", false);
  for (int byte = 0; byte < 256; ++byte) {
    auto id = unigram.byte_fallback_ ? unigram.vocabulary_.find(fmt::format("<0x{:02X}>", byte))
                                     : std::nullopt;
    unigram.byte_tokens_[static_cast<size_t>(byte)] = id.value_or(kNone);
  }
  return unigram;
}

void Unigram::load_scores(const TokenizerFile& file) {
  trie_ = Trie(file, kTokenizerFile);
  scores_ = file.scores;  // ids are in order
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (!std::isfinite(scores_[i]))
      fail(ErrorKind::refused, "{}: token '{}' has no finite score", kTokenizerFile,
           file.tokens[i]);
    if (!file.may_be_text(i)) continue;
    lowest = std::min(lowest, scores_[i]);
    longest_ = std::max(longest_, file.tokens[i].size());
  }
  single_precision_ = file.single_precision;
  unknown_score_ = sum(lowest, -kUnknownPenalty);
}

double Unigram::sum(double a, double b) const {
  return single_precision_ ? double{static_cast<float>(a + b)} : a + b;
}

void Unigram::encode(const Pieces& pieces, Work& work, std::vector<int32_t>& ids) const {
  pieces.each([&](std::string_view part, bool end) { add_part(part, end, work, ids); });
}

void Unigram::add_part(std::string_view part, bool last, Work& work,
                       std::vector<int32_t>& ids) const {
  work.text += part;
  work.places.resize(work.text.size() + 1);
  while (extend(work, last)) {
  }
  if (last) {
    take(work.text.size(), work, ids);
    end_unknown(work, ids);
    work.places.assign(1, {});
    work.reached = work.furthest = 0;
    work.enough = kCutAt;
  } else if (work.reached >= work.enough) {
    take(decided(work), work, ids);
    work.enough = std::max(kCutAt, 2 * work.text.size());
  }
}

// Looks at all tokens that begin at work.reached. False where the text ends first, or has ended.
bool Unigram::extend(Work& work, bool last) const {
  const size_t begin = work.reached;
  const std::string_view text = work.text;
  if (begin == text.size()) return false;
  const Place here = work.places[begin];
  auto reach = [&](size_t end, double score, int32_t id) {
    Place& place = work.places[end];
    if (place.from == kNone || score > place.score)
      place = {.score = score, .from = static_cast<int32_t>(begin), .id = id};
    work.furthest = std::max(work.furthest, end);
  };
  const size_t character = begin + static_cast<size_t>(utf8_char_at(text, begin).bytes);
  bool is_token = false;
  Trie::Node node;
  size_t end = begin;
  while (end < text.size() && !node.is_leaf && trie_.step(node, text[end])) {
    ++end;
    if (node.token == kNone) continue;
    reach(end, sum(here.score, scores_[static_cast<size_t>(node.token)]), node.token);
    is_token = is_token || end == character;
  }
  // A part of the text may follow that lengthens the token; what was reached so far is reached
  // again.
  if (end == text.size() && !node.is_leaf && !last) return false;
  if (!is_token) {
    const double score = sum(here.score, unknown_score_);
    const Place& place = work.places[character];
    if (unknown_ == kNone && (place.from == kNone || score > place.score)) {
      fail(ErrorKind::refused, "{}: model.unk_id is missing, and the text has {:?}, which needs it",
           kTokenizerFile, text.substr(begin, character - begin));
    }
    reach(character, score, unknown_);
  }
  work.reached = character;
  return true;
}

// Returns the length of the text up to which the best ways to all places where the rest can begin
// are the same.
size_t Unigram::decided(const Work& work) const {
  // The ways that are not joined yet go back from the last places, the furthest one first.
  std::vector<size_t> ends;
  for (size_t at = work.reached; at <= work.furthest || at == work.reached; ++at)
    if (at == 0 || work.places[at].from != kNone) ends.push_back(at);
  std::ranges::make_heap(ends);
  while (ends.size() > 1) {
    std::ranges::pop_heap(ends);
    const size_t furthest = ends.back();
    ends.pop_back();
    if (ends.front() == furthest) continue;
    ends.push_back(static_cast<size_t>(work.places[furthest].from));
    std::ranges::push_heap(ends);
  }
  return ends.front();
}

// The tokens of the best way to `end`, where the rest of the piece begins then.
void Unigram::take(size_t end, Work& work, std::vector<int32_t>& ids) const {
  if (end == 0) return;
  work.path.clear();
  for (size_t at = end; at > 0; at = static_cast<size_t>(work.places[at].from))
    work.path.emplace_back(work.places[at].from, work.places[at].id);
  for (size_t i = work.path.size(); i-- > 0;) {
    auto [from, id] = work.path[i];
    if (id != unknown_) {
      end_unknown(work, ids);
      ids.push_back(id);
    } else {
      const size_t to = i > 0 ? static_cast<size_t>(work.path[i - 1].first) : end;
      const auto begin = static_cast<size_t>(from);
      add_unknown(std::string_view(work.text).substr(begin, to - begin), work);
    }
  }
  work.text.erase(0, end);
  work.places.erase(work.places.begin(), work.places.begin() + static_cast<ptrdiff_t>(end));
  for (Place& place : work.places)
    if (place.from != kNone) place.from -= static_cast<int32_t>(end);
  work.places[0].from = kNone;
  work.reached -= std::min(work.reached, end);
  work.furthest -= std::min(work.furthest, end);
}

// Unknown characters side by side are one token, or the tokens of all of their bytes.
void Unigram::add_unknown(std::string_view text, Work& work) const {
  const bool first = !std::exchange(work.unknown_pending, true);
  if (work.unknown.size() <= longest_) work.unknown += text;
  if (!byte_fallback_ || (!first && work.unknown_bytes.empty())) return;
  for (char byte : text) {
    const int32_t id = byte_tokens_[static_cast<uint8_t>(byte)];
    if (id == kNone) return work.unknown_bytes.clear();
    work.unknown_bytes.push_back(id);
  }
}

void Unigram::end_unknown(Work& work, std::vector<int32_t>& ids) const {
  if (!std::exchange(work.unknown_pending, false)) return;
  if (auto id = vocabulary_.find(work.unknown)) {
    ids.push_back(*id);
  } else if (!work.unknown_bytes.empty()) {
    ids.insert(ids.end(), work.unknown_bytes.begin(), work.unknown_bytes.end());
  } else {
    ids.push_back(unknown_);
  }
  work.unknown.clear();
  work.unknown_bytes.clear();
}

}  // namespace sluice
