#include "src/cli/chat/word_wrap.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cwchar>

#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

// Punctuation of wide scripts that must not begin a row.
constexpr std::u32string_view kClosing = U"、。〉》」』】〕〗〙〛！），．：；？］｝";

size_t width_of(char32_t character) {
  const int width = wcwidth(static_cast<wchar_t>(character));
  return width > 0 ? static_cast<size_t>(width) : 0;
}

}  // namespace

size_t terminal_columns(int descriptor) {
  constexpr size_t kUsual = 80;
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

void WordWrap::add_gap(std::string_view text, char32_t character) {
  constexpr size_t kTab = 8;
  if (!word_.empty()) flush();
  if (character == '\n') {
    write_("\n");  // spaces before it are not seen
    gap_.clear();
    gap_width_ = column_ = 0;
    return;
  }
  gap_ += text;
  gap_width_ += character == '\t' ? kTab - (column_ + gap_width_) % kTab : 1;
}

void WordWrap::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    const std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    if (c.code_point == ' ' || c.code_point == '\t' || c.code_point == '\n') {
      add_gap(bytes, c.code_point);
      continue;
    }
    const size_t width = width_of(c.code_point);
    // Wide scripts have no spaces: a row may end before each character.
    if (width > 1 && kClosing.find(c.code_point) == std::u32string_view::npos && !word_.empty())
      flush();
    word_ += bytes;
    word_width_ += width;
  }
}

void WordWrap::flush() {
  if (word_.empty()) return;
  const size_t columns = std::max<size_t>(columns_(), 1);
  if (column_ > 0 && column_ + gap_width_ + word_width_ > columns) {
    write_("\n");
    column_ = 0;
  } else {
    write_(gap_);
    column_ += gap_width_;
  }
  write_(word_);
  column_ += word_width_;
  if (column_ > columns)
    column_ = (column_ - 1) % columns + 1;  // the terminal breaks what is wider
  gap_.clear();
  word_.clear();
  gap_width_ = word_width_ = 0;
}

void WordWrap::finish() {
  flush();
  gap_.clear();
  gap_width_ = column_ = 0;
}

}  // namespace sluice::cli
