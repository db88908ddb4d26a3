#include "io/lines.h"

#include <algorithm>
#include <span>

namespace sluice::io {

bool LineReader::fill() {
  size_t length = std::min<uint64_t>(buffer_.size(), file_.size() - read_);
  file_.read(read_, std::span(buffer_).first(length));
  read_ += length;
  rest_ = std::string_view(buffer_).substr(0, length);
  return length > 0;
}

std::optional<LineReader::Line> LineReader::next() {
  while (!rest_.empty() || fill()) {
    Line line = read_line();
    if (!blank_) return line;
  }
  return std::nullopt;
}

LineReader::Line LineReader::read_line() {
  Line line{.offset = read_ - rest_.size(), .length = 0, .number = ++number_, .text = {}};
  held_.clear();
  blank_ = true;
  for (bool ended = false; !ended && (!rest_.empty() || fill());) {
    size_t end = rest_.find('\n');
    ended = end != std::string_view::npos;
    std::string_view part = rest_.substr(0, end);
    rest_.remove_prefix(part.size() + (ended ? 1 : 0));
    blank_ = blank_ && part.find_first_not_of(" \t\r") == std::string_view::npos;
    bool whole = ended && line.length == 0;
    line.length += part.size();
    if (line.length > most_) continue;
    if (whole) {
      line.text = part;
    } else {
      held_ += part;
      line.text = held_;
    }
  }
  if (line.length > most_) line.text = {};
  return line;
}

}  // namespace sluice::io
