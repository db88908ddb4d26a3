#include "src/chat/answer_parser.h"

namespace sluice {

AnswerParser::AnswerParser(std::string_view chat_template, std::string_view prompt,
                           const Json& tools) {
  if (has_channels(chat_template)) {
    channels_.emplace(prompt);
    return;
  }
  reasoning_.emplace(prompt);
  const CallForm* form = call_form(chat_template);
  if (form == nullptr || (tools.empty() && !form->tags.around_text)) return;
  CallTags tags = form->tags;
  if (tools.empty()) tags.open = {};
  calls_.emplace(tags, tools);
}

bool AnswerParser::needs_special_tokens(std::string_view chat_template, const Json& tools) {
  return thinks_in_special_tokens(chat_template) || has_channels(chat_template) ||
         (!tools.empty() && call_form(chat_template) != nullptr);
}

std::vector<AnswerPart> AnswerParser::add(std::string_view text, bool last) {
  std::vector<AnswerPart> parts;
  if (channels_) {
    channels_->add(text, last, parts);
    return parts;
  }
  std::string said;
  for (const ReasoningSplitter::Part& part : reasoning_->add(text, last)) {
    if (part.reasoning)
      give(parts, AnswerPart::Kind::reasoning, part.text);
    else
      said += part.text;
  }
  if (calls_)
    calls_->add(said, last, parts);
  else
    give(parts, AnswerPart::Kind::content, said);
  return parts;
}

}  // namespace sluice
