// The parts of a model's answer in a chat: thoughts, text, calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/chat/answer_parser.h"
#include "src/engine/request.h"

namespace sluice {

// Facts about an answer before it comes.
struct ChatForm {
  std::string_view chat_template = {};  // outlives the answer
  AnswerHints hints = {};
  std::string prompt_end = {};  // of the prompt's text: it may have begun to think already
  Json tools = {};              // that the model was told of; null: none
  Json tool_choice = "auto";    // as the request has it
  bool parallel_calls = true;   // there may be several
  Json echo = Json::object();   // what the answer repeats of the request, beside these

  void set_prompt(std::string_view text);
  // Bytes that it holds with the parsers of so many choices.
  uint64_t held_bytes(int64_t choices) const;
  AnswerParser parser() const { return {chat_template, prompt_end, tools, hints}; }
};

// The ids of an answer's calls. A client gives them back to the model, which knows those that it
// wrote.
class CallIds {
 public:
  // `written` by the model, unless another call has it, or it wrote none; else `own`.
  std::string of(const std::string& written, std::string own);

 private:
  std::vector<std::string> known_;
};

// A whole answer.
struct ChatReply {
  struct Call {
    std::string name;
    std::string arguments;
    std::string id;  // that the model wrote
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  void add(AnswerPart part);
};
// Returns the parser of an answer that has come as a whole. An answer with the last tag of thoughts
// alone began in thoughts, which a stream cannot know.
AnswerParser whole_parser(const ChatForm& form, const RequestResult& result);
ChatReply chat_reply(const ChatForm& form, const RequestResult& result);
// Returns whether a limit or a stop string has cut an answer, so that there would be more of it.
bool is_cut(const RequestResult& result);

}  // namespace sluice
