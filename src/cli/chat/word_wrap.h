// Text that is printed as it comes, with line breaks between words where the rows of a terminal
// end.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sluice::cli {

class WordWrap {
 public:
  // `columns`: asked for the width of a row each time, since a window may be resized.
  WordWrap(std::function<void(std::string_view)> write, std::function<size_t()> columns)
      : write_(std::move(write)), columns_(std::move(columns)) {}

  // Valid UTF-8. The last word is held back until its end is known.
  void add(std::string_view text);
  // Writes the word that is held back. The next text goes on behind it.
  void flush();
  // The same at the end of a text: the next one begins a row.
  void finish();

 private:
  void add_gap(std::string_view text, char32_t character);

  std::function<void(std::string_view)> write_;
  std::function<size_t()> columns_;
  std::string gap_, word_;  // held back: spaces, and the word behind them
  size_t gap_width_ = 0, word_width_ = 0;
  size_t column_ = 0;  // of what has been written
};

// Columns of the terminal that `descriptor` is, 80 where it does not say.
size_t terminal_columns(int descriptor);

}  // namespace sluice::cli
