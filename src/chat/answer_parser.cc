#include "src/chat/answer_parser.h"

namespace sluice {

bool has_channels(std::string_view chat_template) {
  return chat_template.find("<|channel|>") != chat_template.npos;
}

AnswerParser::AnswerParser(std::string_view chat_template, std::string_view prompt,
                           const Json& tools) {
  if (has_channels(chat_template)) {
    channels_.emplace(prompt);
    return;
  }
  reasoning_.emplace(prompt);
  if (tools.empty()) return;
  if (auto syntax = tool_syntax(chat_template)) calls_.emplace(std::move(*syntax), tools);
}

bool AnswerParser::needs_special_tokens(std::string_view chat_template, const Json& tools) {
  const bool thinks = chat_template.find("[THINK]") != chat_template.npos;
  return thinks || has_channels(chat_template) || (!tools.empty() && tool_syntax(chat_template));
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
