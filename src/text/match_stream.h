// The matches of a pattern, and what lies between them, in a text that comes bit by bit.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "src/text/pattern.h"

namespace sluice {

class MatchStream {
 public:
  // A match, or what lies between two, which may come in several parts.
  struct Part {
    std::string_view text;
    bool is_match;
    bool continued;  // the part before it was of the same stretch
  };

  explicit MatchStream(const Pattern& pattern)  // which must outlive this
      : matcher_(pattern), lookbehind_(pattern.lookbehind()) {}

  // Calls take(Part) for what is certain, whatever comes next; with `last`, for all that is left,
  // and the next call begins a text. The views end with the call.
  template <class Take>
  void add(std::string_view text, bool last, Take take);

  size_t held() const { return held_.size(); }  // bytes

 private:
  // Keeps what has not been given, and what lies before it that the pattern may look at.
  void keep(std::string_view all);
  void reset();

  PatternMatcher matcher_;
  size_t lookbehind_;  // characters
  std::string held_;
  // Offsets into it.
  PatternMatcher::Search search_;
  size_t given_ = 0;
  // Length of the text at which to try again: a match that grows and grows is looked for at each
  // doubling, not in each bit of text.
  size_t enough_ = 0;
  bool between_ = false;  // the last part that was given is no match
};

template <class Take>
void MatchStream::add(std::string_view text, bool last, Take take) {
  std::string_view all = text;
  if (!held_.empty()) all = held_ += text;
  if (!last && all.size() < enough_) return;
  auto give_up_to = [&](size_t end) {
    if (given_ >= end) return;
    take(Part{all.substr(given_, end - given_), false, between_});
    given_ = end;
    between_ = true;
  };
  while (std::optional<TextSpan> match = matcher_.find_next(all, search_, last)) {
    give_up_to(match->begin);
    take(Part{match->of(all), true, false});
    given_ = match->end;
    between_ = false;
  }
  give_up_to(last ? all.size() : search_.from);
  last ? reset() : keep(all);
}

}  // namespace sluice
