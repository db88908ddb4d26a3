// Answers in the harmony format of gpt-oss: messages in channels, thoughts and calls among them
// (https://cookbook.openai.com/articles/openai-harmony).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/chat/answer_part.h"

namespace sluice {

// Returns whether a model of this template answers so.
bool has_channels(std::string_view chat_template);

class ChannelParser {
 public:
  // `prompt`: what the answer continues, usually "<|start|>assistant".
  explicit ChannelParser(std::string_view prompt);

  // Gives what is certain once `text` has come; with `last`, all that is left. `cut`: there would
  // be more. A call is given when it has ended; one whose arguments are no object of JSON, and
  // cannot be mended to one without guessing, is content.
  void add(std::string_view text, bool last, std::vector<AnswerPart>& parts, bool cut = false);

 private:
  bool read_header();
  bool read_message(bool last, bool cut, std::vector<AnswerPart>& parts);
  void give_plain(std::vector<AnswerPart>& parts) const;
  void give_call(bool complete, std::vector<AnswerPart>& parts);

  std::string held_;
  bool in_header_ = true;
  bool first_ = true;                                  // no message has begun
  AnswerPart::Kind kind_ = AnswerPart::Kind::content;  // of the present message
  std::string name_;                                   // of the tool that it calls
  std::string arguments_;
};

}  // namespace sluice
