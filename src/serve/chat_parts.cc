#include "src/serve/chat_parts.h"

#include <algorithm>
#include <utility>

namespace sluice {

void ChatForm::set_prompt(std::string_view text) {
  constexpr size_t kEnd = 256;
  prompt_end = text.substr(text.size() - std::min(text.size(), kEnd));
}

void ChatReply::add(AnswerPart part) {
  switch (part.kind) {
    case AnswerPart::Kind::reasoning:
      reasoning += part.text;
      break;
    case AnswerPart::Kind::content:
      content += part.text;
      break;
    case AnswerPart::Kind::call:
      calls.push_back({std::move(part.text), {}});
      break;
    case AnswerPart::Kind::arguments:
      calls.back().arguments += part.text;
      break;
  }
}

ChatReply chat_reply(const ChatForm& form, std::string_view text) {
  ChatReply reply;
  for (AnswerPart& part : form.parser().add(text, true)) reply.add(std::move(part));
  return reply;
}

}  // namespace sluice
