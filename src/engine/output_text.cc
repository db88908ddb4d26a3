#include "src/engine/output_text.h"

#include <algorithm>
#include <utility>

namespace sluice {

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    Stop& stop = stops_.emplace_back(Stop{.text = std::move(text), .border = {}});
    stop.border.reserve(stop.text.size());
    stop.border.push_back(0);
    for (uint32_t i = 1, same = 0; i < stop.text.size(); ++i) {
      while (same > 0 && stop.text[i] != stop.text[same]) same = stop.border[same - 1];
      if (stop.text[i] == stop.text[same]) ++same;
      stop.border.push_back(same);
    }
  }
}

// Returns where in `text` the stop string ends for the first time.
std::optional<size_t> StopStrings::find_end(Stop& stop, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    while (stop.matched > 0 && text[i] != stop.text[stop.matched])
      stop.matched = stop.border[stop.matched - 1];
    if (text[i] == stop.text[stop.matched]) ++stop.matched;
    if (stop.matched == stop.text.size()) return i + 1;
  }
  return std::nullopt;
}

std::string StopStrings::add(std::string_view text, bool last) {
  const size_t before = held_.size();
  held_ += text;
  size_t cut = std::string::npos, maybe = 0;
  stop_.reset();
  for (Stop& s : stops_) {
    const auto found = find_end(s, text);
    const size_t begin = found ? before + *found - s.text.size() : std::string::npos;
    if (begin < cut) stop_ = static_cast<size_t>(&s - stops_.data());
    cut = std::min(cut, begin);
    maybe = std::max(maybe, s.matched);
  }
  const size_t end = stopped() ? cut : held_.size() - (last ? 0 : maybe);
  std::string shown = held_.substr(shown_, end - shown_);
  shown_ = end;
  if (2 * shown_ >= held_.size()) {  // seldom, where much is held
    held_.erase(0, shown_);
    shown_ = 0;
  }
  return shown;
}

}  // namespace sluice
