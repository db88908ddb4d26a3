// The text of a continuation as it becomes certain: whole characters, and nothing that might turn
// out to begin a stop string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/detokenizer.h"

namespace sluice {

// Holds a text back from where a stop string might begin. The time is linear in the text, whatever
// the stop strings repeat (Knuth, Morris, Pratt, SIAM J. Comput. 6, 1977).
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // none is empty

  // Returns the text that is certain once `text` has come; with `last`, all that is left. Once a
  // stop string is complete, only the text before it (before the first, if several are).
  std::string add(std::string_view text, bool last);
  bool stopped() const { return stop_.has_value(); }
  // The stop string, once there is one.
  const std::string& stop() const { return stops_[*stop_].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> border;  // of each beginning: its longest end that begins `text`, too
    size_t matched = 0;            // bytes at its beginning that the text so far ends with
  };
  static std::optional<size_t> find_end(Stop& stop, std::string_view text);

  std::vector<Stop> stops_;
  std::string held_;
  size_t shown_ = 0;            // bytes at its beginning
  std::optional<size_t> stop_;  // the number of the one that is complete
};

class OutputText {
 public:
  // The tokenizer outlives this.
  OutputText(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<std::string> stops)
      : detokenizer_(tokenizer, skip_special_tokens), stops_(std::move(stops)) {}

  // The text that can be shown with the next token; and at the end.
  std::string add(int32_t id) { return stops_.add(detokenizer_.add(id), false); }
  std::string finish() { return stops_.add(detokenizer_.finish(), true); }
  bool stopped() const { return stops_.stopped(); }  // before a stop string: nothing comes after it
  const std::string& stop() const { return stops_.stop(); }  // that string

 private:
  Detokenizer detokenizer_;
  StopStrings stops_;
};

}  // namespace sluice
