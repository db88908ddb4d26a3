#include "src/text/token_stream.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "src/base/error.h"

namespace sluice {
namespace {

constexpr size_t kBlock = 4 * KiB;
// Bytes for each held byte until it has become ids: itself, and twice while it is moved; the piece
// that it is in, in the byte alphabet; a symbol, and the pairs that may merge.
constexpr uint64_t kBytesAByte = 64;
// The step in which room is asked for [bytes].
constexpr uint64_t kStep = MiB;

template <class Model>
using WorkOf = std::remove_cvref_t<Model>::Work;

// Calls text(part, whether it ends here) and token(id) for segments, of which the last one may go
// on. `inside`: a text has begun that goes on.
void each_segment(const std::vector<AddedTokens::Segment>& segments, bool last, bool& inside,
                  const auto& text, const auto& token) {
  for (size_t i = 0; i < segments.size(); ++i) {
    const AddedTokens::Segment& segment = segments[i];
    if (segment.id >= 0) {
      if (std::exchange(inside, false)) text(std::string_view(), true);
      token(segment.id);
      continue;
    }
    bool ends = i + 1 < segments.size() ? segments[i + 1].id >= 0 : last;
    text(segment.text, ends);
    inside = !ends;
  }
  if (last && std::exchange(inside, false)) text(std::string_view(), true);
}

}  // namespace

TokenStream::TokenStream(const Tokenizer& tokenizer, bool add_special_tokens, Reserve reserve)
    : tokenizer_(tokenizer),
      reserve_(std::move(reserve)),
      added_(tokenizer.added_, false),
      normalizer_(tokenizer.normalizer_),
      added_normalized_(tokenizer.added_, true),
      pre_tokenizer_(tokenizer.pre_tokenizer_) {
  std::visit([&](const auto& model) { work_.emplace<WorkOf<decltype(model)>>(); },
             tokenizer.model_);
  if (!add_special_tokens) return;
  constexpr int32_t kText = -1;
  before_ = {kText};
  tokenizer.post_processor_.add_special_tokens(before_);
  auto text = std::ranges::find(before_, kText);
  after_.assign(text + 1, before_.end());
  before_.erase(text, before_.end());
}

void TokenStream::add(std::string_view bytes, std::vector<int32_t>& ids) {
  while (!bytes.empty()) {
    add_block(bytes.substr(0, kBlock), false, ids);
    bytes.remove_prefix(std::min(kBlock, bytes.size()));
  }
}

void TokenStream::finish(std::string_view bytes, std::vector<int32_t>& ids) {
  size_t block = std::min(kBlock, bytes.size());
  add(bytes.substr(0, bytes.size() - block), ids);
  add_block(bytes.substr(bytes.size() - block), true, ids);
  ids.insert(ids.end(), after_.begin(), after_.end());
}

void TokenStream::add_block(std::string_view bytes, bool last, std::vector<int32_t>& ids) {
  ids.insert(ids.end(), before_.begin(), before_.end());
  before_.clear();
  valid_.clear();
  decoder_.append(bytes, valid_);
  if (last) decoder_.finish(valid_);
  segments_.clear();
  added_.add(valid_, last, segments_);
  each_segment(
      segments_, last, inside_, [&](std::string_view text, bool end) { normalize(text, end, ids); },
      [&](int32_t id) {
        pre_tokenizer_.pass();
        ids.push_back(id);
      });
  make_room();
}

// A part of the text between two added tokens that are looked for before it is normalized.
void TokenStream::normalize(std::string_view text, bool last, std::vector<int32_t>& ids) {
  normalized_ = text;
  normalizer_.add(normalized_, last);
  normalized_segments_.clear();
  added_normalized_.add(normalized_, last, normalized_segments_);
  each_segment(
      normalized_segments_, last, inside_normalized_,
      [&](std::string_view part, bool end) { cut(part, end, ids); },
      [&](int32_t id) {
        pre_tokenizer_.pass();
        ids.push_back(id);
      });
}

// A part of the text between two added tokens.
void TokenStream::cut(std::string_view text, bool last, std::vector<int32_t>& ids) {
  const Pieces& pieces = pre_tokenizer_.add(text, last);
  auto encode = [&](const auto& model) {
    model.encode(pieces, std::get<WorkOf<decltype(model)>>(work_), ids);
  };
  std::visit(encode, tokenizer_.model_);
}

void TokenStream::make_room() {
  uint64_t held = added_.held() + normalizer_.held() + added_normalized_.held() +
                  pre_tokenizer_.held() +
                  std::visit([](const auto& work) { return work.held(); }, work_);
  if (held > kLongestStretch) {
    fail(ErrorKind::refused,
         "the text has a stretch of more than {} that cannot be tokenized in parts: no word ends "
         "there",
         format_size(kLongestStretch));
  }
  // Every part may hold some of a block.
  uint64_t needed = held > 2 * kBlock ? round_up(held * kBytesAByte, kStep) : 0;
  if (needed <= asked_) return;
  if (reserve_) reserve_(needed);
  asked_ = needed;
}

}  // namespace sluice
