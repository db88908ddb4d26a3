#include "src/jinja/word_wrap.h"

#include <algorithm>

#include "src/jinja/characters.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

using WideText = std::u32string;
using WideView = std::u32string_view;

bool is_wrap_space(char32_t c) { return WideView(U"\t\n\v\f\r ").find(c) != WideView::npos; }

// Words and the white space between them, in pieces that may be on different lines.
class Chunks {
 public:
  Chunks(WideView text, bool at_hyphens) : text_(text), at_hyphens_(at_hyphens) {}

  std::vector<WideView> all(Charge& charge) const {
    std::vector<WideView> chunks;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = is_wrap_space(text_[at]) ? end_of_space(at)
                         : at_hyphens_            ? end_of_piece(at)
                                                  : end_of_word(at);
      charge.add(sizeof(WideView));
      chunks.push_back(text_.substr(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  char32_t at(size_t i) const { return i < text_.size() ? text_[i] : U'\0'; }
  bool word(size_t i) const { return i < text_.size() && (is_alnum(text_[i]) || text_[i] == '_'); }
  bool letter(size_t i) const { return word(i) && !is_decimal(text_[i]); }
  // A part of a word, or punctuation that belongs to one.
  bool punctuated(size_t i) const {
    return word(i) || (i < text_.size() && WideView(U"!\"'&.,?").find(text_[i]) != WideView::npos);
  }
  size_t end_of_space(size_t i) const {
    while (i < text_.size() && is_wrap_space(text_[i])) ++i;
    return i;
  }
  size_t end_of_word(size_t i) const {
    while (i < text_.size() && !is_wrap_space(text_[i])) ++i;
    return i;
  }
  // The end of a dash of several hyphens in front of a word; `i` itself where there is none.
  size_t end_of_dash(size_t i) const {
    if (i == 0 || !punctuated(i - 1)) return i;
    size_t end = i;
    while (at(end) == '-') ++end;
    return end >= i + 2 && word(end) ? end : i;
  }
  bool hyphenates(size_t i) const {
    if (at(i) != '-' || !letter(i + 1)) return false;
    if (!letter(i + 2) && !(at(i + 2) == '-' && letter(i + 3))) return false;
    if (i >= 2 && letter(i - 2) && letter(i - 1)) return true;
    return i >= 3 && letter(i - 3) && at(i - 2) == '-' && punctuated(i - 1);
  }
  size_t end_of_piece(size_t begin) const {
    if (const size_t dash = end_of_dash(begin); dash > begin) return dash;
    for (size_t i = begin + 1;; ++i) {
      if (hyphenates(i)) return i + 1;
      if (i >= text_.size() || is_wrap_space(text_[i])) return i;
      if (end_of_dash(i) > i) return i;
    }
  }

  WideView text_;
  bool at_hyphens_;
};

bool is_blank(WideView chunk) { return std::ranges::all_of(chunk, is_space); }

// Moves what a line has room for from a word that is longer than a line.
void take_of_long_word(WideView& word, WideText& line, size_t room, const WrapStyle& style) {
  size_t end = std::min(room, word.size());
  if (style.break_on_hyphens && word.size() > room && room > 0) {
    const size_t hyphen = word.rfind(U'-', room - 1);
    if (hyphen != WideView::npos && hyphen > 0 && word.find_first_not_of(U'-') < hyphen)
      end = hyphen + 1;
  }
  line += word.substr(0, end);
  word.remove_prefix(end);
}

std::string utf8_of(const WideText& text) {
  std::string bytes;
  for (char32_t c : text) append_utf8(c, bytes);
  return bytes;
}

}  // namespace

std::vector<std::string> wrap_words(Meter& meter, std::string_view text, const WrapStyle& style) {
  meter.text_steps(text.size() * 16);
  Charge charge(meter);
  charge.add(2 * sizeof(char32_t) * text.size());  // the text, and a line of it
  const WideText wide = code_points(text);
  std::vector<WideView> chunks = Chunks(wide, style.break_on_hyphens).all(charge);
  const auto width = static_cast<size_t>(style.width);
  std::vector<std::string> lines;
  for (size_t next = 0; next < chunks.size();) {
    meter.step();
    if (is_blank(chunks[next]) && !lines.empty() && ++next == chunks.size()) break;
    WideText line;
    size_t last = 0;  // where the last chunk of the line begins
    while (next < chunks.size() && line.size() + chunks[next].size() <= width) {
      last = line.size();
      line += chunks[next++];
    }
    if (next < chunks.size() && chunks[next].size() > width) {
      if (style.break_long_words) {
        last = line.size();
        take_of_long_word(chunks[next], line, width - line.size(), style);
      } else if (line.empty()) {
        line = chunks[next++];
      }
    }
    if (is_blank(WideView(line).substr(last))) line.resize(last);
    if (line.empty()) continue;
    charge.add(sizeof(std::string) + 4 * line.size());
    lines.push_back(utf8_of(line));
  }
  return lines;
}

}  // namespace sluice::jinja
