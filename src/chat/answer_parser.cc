#include "src/chat/answer_parser.h"

namespace sluice {

AnswerParser::AnswerParser(std::string_view chat_template, std::string_view prompt,
                           const Json& tools, const AnswerHints& hints)
    : one_call_(hints.one_call) {
  if (has_channels(chat_template)) {
    channels_.emplace(prompt);
    return;
  }
  reasoning_.emplace(prompt);
  const CallForm* form = hints.calls != nullptr ? hints.calls : call_form(chat_template);
  if (form == nullptr || (tools.empty() && !form->tags.around_text)) return;
  CallTags tags = form->tags;
  if (tools.empty()) tags.open = {};
  calls_.emplace(tags, tools);
}

bool AnswerParser::needs_special_tokens(std::string_view chat_template, const Json& tools,
                                        const CallForm* calls) {
  return thinks_in_special_tokens(chat_template) || has_channels(chat_template) ||
         (!tools.empty() && (calls != nullptr || call_form(chat_template) != nullptr));
}

std::vector<AnswerPart> AnswerParser::add(std::string_view text, bool last) {
  std::vector<AnswerPart> parts;
  if (channels_) {
    channels_->add(text, last, parts);
    leave_out_further_calls(parts);
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
  leave_out_further_calls(parts);
  return parts;
}

void AnswerParser::leave_out_further_calls(std::vector<AnswerPart>& parts) {
  if (!one_call_) return;
  std::erase_if(parts, [&](const AnswerPart& part) {
    if (part.kind == AnswerPart::Kind::call) return given_calls_++ > 0;
    return part.kind == AnswerPart::Kind::arguments && given_calls_ > 1;
  });
}

}  // namespace sluice
