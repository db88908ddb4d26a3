#include "src/text/match_stream.h"

#include "src/text/utf8.h"

namespace sluice {

void MatchStream::keep(std::string_view all) {
  size_t begin = given_;
  for (size_t i = 0; i < lookbehind_ && begin > 0; ++i)
    begin -= static_cast<size_t>(utf8_char_before(all, begin).bytes);
  if (held_.empty()) {
    held_ = all.substr(begin);
  } else {
    held_.erase(0, begin);
  }
  given_ -= begin;
  search_.from -= begin;
  size_t& end = search_.previous_end;
  end = end == PatternMatcher::Search::kNowhere || end < begin ? PatternMatcher::Search::kNowhere
                                                               : end - begin;
  enough_ = held_.size() + (held_.size() - given_);
}

void MatchStream::reset() {
  held_.clear();
  search_ = {};
  given_ = enough_ = 0;
  between_ = false;
}

}  // namespace sluice
