#include "src/text/added_tokens.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "src/base/error.h"
#include "src/text/tokenizer_file.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

AddedToken load_token(const Json& config, const Normalizer& normalizer) {
  JsonFields fields(config, "tokenizer.json: added_tokens");
  AddedToken token{};
  token.content = fields.string("content");
  fields.integer("id", 0, UINT32_MAX);  // is only looked at: see IdGiver
  token.single_word = fields.boolean_or("single_word", false);
  token.lstrip = fields.boolean_or("lstrip", false);
  token.rstrip = fields.boolean_or("rstrip", false);
  token.special = fields.boolean_or("special", false);
  token.in_text = fields.boolean_or("in_text", true);
  token.normalized = fields.boolean_or("normalized", !token.special);
  token.normalized_content = token.normalized ? normalizer.normalize(token.content) : token.content;
  return token;
}

// Gives ids as Hugging Face tokenizers does, which pays no heed to those that stand beside the
// tokens: the vocabulary's id, else the next one, counted from the vocabulary's number of tokens.
class IdGiver {
 public:
  IdGiver(const Vocabulary& vocabulary, std::vector<std::string>& warnings)
      : vocabulary_(vocabulary), warnings_(warnings), next_(vocabulary.size()) {}

  void give(AddedToken& token, const Json& written) {
    std::optional<int32_t> known = vocabulary_.find(token.content);
    auto [given, fresh] = given_.try_emplace(token.content, known.value_or(next_));
    token.id = given->second;
    if (!fresh) return;
    if (!known) ++next_;
    if (!known && vocabulary_.has(token.id)) {
      warnings_.push_back(fmt::format("tokenizer.json: tokens '{}' and '{}' both have id {}",
                                      vocabulary_.token(token.id), token.content, token.id));
    }
    if (written == token.id) return;
    if (others_++ == 0) {
      first_ = fmt::format("added token '{}' has id {}, but {} in Hugging Face tokenizers",
                           token.content, written.dump(), token.id);
    }
  }
  // One sentence, however many ids it is about.
  void warn() {
    if (others_ == 0) return;
    std::string more = others_ > 1 ? fmt::format(" (and {} more)", others_ - 1) : std::string();
    warnings_.push_back(fmt::format("tokenizer.json: {}, which is used{}", first_, more));
  }

 private:
  const Vocabulary& vocabulary_;
  std::vector<std::string>& warnings_;
  std::unordered_map<std::string, int32_t> given_;
  int32_t next_;
  int64_t others_ = 0;  // that have another id than is written
  std::string first_;   // of them
};

bool touches_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word_character(utf8_char_before(text, begin).code_point)) ||
         (end < text.size() && is_word_character(utf8_char_at(text, end).code_point));
}

// Returns where the white space that ends at `end` begins, but not before `lowest`.
size_t white_space_begin(std::string_view text, size_t end, size_t lowest) {
  while (end > lowest) {
    Utf8Char c = utf8_char_before(text, end);
    if (!is_white_space(c.code_point)) break;
    end -= static_cast<size_t>(c.bytes);
  }
  return end;
}

size_t white_space_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    Utf8Char c = utf8_char_at(text, begin);
    if (!is_white_space(c.code_point)) break;
    begin += static_cast<size_t>(c.bytes);
  }
  return begin;
}

}  // namespace

AddedTokens AddedTokens::load(const Json& config, const Normalizer& normalizer,
                              const Vocabulary& vocabulary, std::vector<std::string>& warnings) {
  AddedTokens added;
  if (config.is_null()) return added;
  if (!config.is_array()) {
    fail(ErrorKind::refused, "tokenizer.json: added_tokens must be an array");
  }
  IdGiver ids(vocabulary, warnings);
  // The last token counts of several with the same content, or with the same id if the vocabulary
  // has holes.
  std::map<int32_t, AddedToken> by_id;
  for (const Json& entry : config) {
    AddedToken token = load_token(entry, normalizer);
    if (token.content.empty()) continue;
    ids.give(token, entry.at("id"));
    by_id.insert_or_assign(token.id, std::move(token));
  }
  ids.warn();
  for (auto& [id, token] : by_id) added.tokens_.push_back(std::move(token));
  added.prepare_matchers();
  return added;
}

void AddedTokens::prepare_matchers() {
  auto content = [&](uint32_t i) -> const std::string& { return tokens_[i].normalized_content; };
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    if (content(i).empty() || !tokens_[i].in_text) continue;
    Matcher& matcher = matchers_[tokens_[i].normalized];
    matcher.order.push_back(i);
    matcher.first_byte[static_cast<uint8_t>(content(i)[0])] = true;
    matcher.lstrip |= tokens_[i].lstrip;
  }
  // Tokens with the same content are in the order of their ids.
  auto before = [&](uint32_t a, uint32_t b) {
    int order = content(a).compare(content(b));
    return order != 0 ? order < 0 : a < b;
  };
  for (Matcher& matcher : matchers_) std::ranges::sort(matcher.order, before);
}

const AddedToken* AddedTokens::find(int32_t id) const {
  auto at = std::ranges::lower_bound(tokens_, id, {}, &AddedToken::id);
  return at != tokens_.end() && at->id == id ? &*at : nullptr;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  auto at = std::ranges::find(tokens_, content, &AddedToken::content);
  return at != tokens_.end() ? &*at : nullptr;
}

// The longest token that stands in `text` at `at`.
AddedTokens::Candidate AddedTokens::longest_at(const Matcher& matcher, std::string_view text,
                                               size_t at) const {
  if (!matcher.first_byte[static_cast<uint8_t>(text[at])]) return {nullptr, false};
  auto content = [&](uint32_t i) -> const std::string& { return tokens_[i].normalized_content; };
  const AddedToken* longest = nullptr;
  std::span<const uint32_t> candidates(matcher.order);  // agree with the text in `depth` bytes
  for (size_t depth = 0; !candidates.empty(); ++depth) {
    // A token that ends here sorts before its continuations. Equal ones: the first counts.
    if (content(candidates.front()).size() == depth) {
      longest = &tokens_[candidates.front()];
      while (!candidates.empty() && content(candidates.front()).size() == depth) {
        candidates = candidates.subspan(1);
      }
    }
    if (at + depth == text.size()) return {longest, !candidates.empty()};
    auto byte = [&](uint32_t i) { return static_cast<uint8_t>(content(i)[depth]); };
    auto same =
        std::ranges::equal_range(candidates, static_cast<uint8_t>(text[at + depth]), {}, byte);
    candidates = std::span(same.begin(), same.end());
  }
  return {longest, false};
}

void AddedTokens::Stream::add(std::string_view text, bool last, std::vector<Segment>& segments) {
  if (matcher_.order.empty()) {
    if (!text.empty()) segments.push_back({text, -1});
    return;
  }
  held_.erase(0, done_);
  at_ -= done_;
  text_begin_ -= done_;
  done_ = 0;
  held_ += text;
  if (!last && held_.size() < enough_) return;
  const size_t searched = at_;
  find(last, segments);
  size_t certain = last ? held_.size() : certain_text(searched);
  if (text_begin_ < certain) {
    segments.push_back({std::string_view(held_).substr(text_begin_, certain - text_begin_), -1});
    text_begin_ = certain;
  }
  if (last) {
    done_ = held_.size();
    at_ = text_begin_ = done_;
    enough_ = 0;
    return;
  }
  done_ = std::min(at_, text_begin_);
  if (done_ > 0) done_ -= static_cast<size_t>(utf8_char_before(held_, done_).bytes);
  // White space behind a token may go on and on: it is gone through at each doubling.
  enough_ = held_.size() - done_ + (held_.size() - at_);
}

// Searches as far as nothing that comes next can change what is found.
void AddedTokens::Stream::find(bool last, std::vector<Segment>& segments) {
  while (at_ < held_.size()) {
    auto [token, open] = tokens_.longest_at(matcher_, held_, at_);
    if (open && !last) return;
    if (token == nullptr) {
      ++at_;
      continue;
    }
    size_t begin = at_;
    size_t end = at_ + token->normalized_content.size();
    if (!is_certain(*token, end, last)) return;
    // The search goes on behind the token itself, not behind the white space it takes along, and
    // also where it was rejected: a shorter token inside of it is not looked for.
    at_ = end;
    if (token->single_word && touches_word(held_, begin, end)) continue;
    take(*token, begin, end, segments);
  }
}

// Returns whether text behind `end` cannot change whether the token stands there, and where it
// ends.
bool AddedTokens::Stream::is_certain(const AddedToken& token, size_t end, bool last) const {
  if (last) return true;
  if (token.single_word && end == held_.size()) return false;
  return !token.rstrip || white_space_end(held_, end) < held_.size();
}

void AddedTokens::Stream::take(const AddedToken& token, size_t begin, size_t end,
                               std::vector<Segment>& segments) {
  if (token.lstrip) {
    begin = std::max(white_space_begin(held_, begin, std::min(begin, text_begin_)), text_begin_);
  }
  if (token.rstrip) end = white_space_end(held_, end);
  if (text_begin_ < begin) {
    segments.push_back({std::string_view(held_).substr(text_begin_, begin - text_begin_), -1});
  }
  // White space that is a token itself may have gone along with the token before it.
  if (begin < end) segments.push_back({{}, token.id});
  text_begin_ = end;
}

// Returns the end of the text that no token takes along. All that was held of it when the search
// stood at `searched` was white space.
size_t AddedTokens::Stream::certain_text(size_t searched) const {
  if (!matcher_.lstrip) return at_;
  size_t lowest = std::min(std::max(searched, text_begin_), at_);
  size_t begin = white_space_begin(held_, at_, lowest);
  return begin == lowest && lowest == searched ? text_begin_ : begin;
}

}  // namespace sluice
