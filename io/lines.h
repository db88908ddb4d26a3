// The lines of a file, one after another, without holding more than one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/input_file.h"

namespace sluice::io {

class LineReader {
 public:
  struct Line {
    uint64_t offset = 0;
    uint64_t length = 0;    // without its end
    uint64_t number = 0;    // from 1
    std::string_view text;  // until the next call; empty where the line is longer than `most`
  };

  // Lines longer than `most` are skipped. The file outlives this.
  LineReader(const InputFile& file, uint64_t most)
      : file_(file), most_(most), buffer_(kBuffer, '\0') {}
  // The next line that is not blank; nullopt at the end.
  std::optional<Line> next();

 private:
  static constexpr size_t kBuffer = 1 << 16;
  bool fill();
  Line read_line();

  const InputFile& file_;
  uint64_t most_;
  std::string buffer_;
  std::string_view rest_;  // of the buffer
  std::string held_;       // of a line that began in an earlier buffer
  uint64_t read_ = 0;      // of the file
  uint64_t number_ = 0;
  bool blank_ = true;  // the last line
};

}  // namespace sluice::io
