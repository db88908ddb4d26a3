// Texts that options name, as they come.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/input_stream.h"
#include "src/base/json.h"
#include "src/engine/planner.h"
#include "src/text/token_stream.h"

namespace sluice::cli {

// The file `path`, "-" for stdin; errors name `option`, too.
io::InputStream open_input(const std::string& path, const std::string& option,
                           const std::stop_token& stop);

// A request a line in, its answer a line out as they come. `answer` is given the line and its place
// for messages.
void each_line(
    const std::string& path, const std::stop_token& stop,
    const std::function<Json(const std::string& line, const std::string& where)>& answer);

// The token ids of a text, with the tokenizer's special tokens.
class TextIds {
 public:
  // `whole`: with a line break at the end, which echo adds.
  TextIds(Planner& planner, io::InputStream input, bool whole = true);

  // Reads until there are `count` ids, or the text ends. Returns whether there are `count`.
  bool read(size_t count);
  // The ids that have been read and not dropped.
  std::span<const int32_t> ids() const { return ids_; }
  void drop(size_t count);
  // True if no text has come.
  bool empty() const { return empty_; }

  // Bytes that reading `count` ids at a time takes.
  static uint64_t bytes(size_t count);

 private:
  io::InputStream input_;
  TokenStream stream_;
  bool whole_;
  bool line_ended_ = false;  // by a line break that is held back
  bool empty_ = true;
  bool ended_ = false;
  std::vector<int32_t> ids_;
};

}  // namespace sluice::cli
