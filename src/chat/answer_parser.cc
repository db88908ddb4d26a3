#include "src/chat/answer_parser.h"

#include <algorithm>
#include <utility>

namespace sluice {

AnswerParser::AnswerParser(std::string_view chat_template, std::string_view prompt,
                           const Json& tools, const AnswerHints& hints)
    : one_call_(hints.one_call) {
  if (has_channels(chat_template)) {
    channels_.emplace(prompt);
    return;
  }
  const CallForm* form = hints.calls != nullptr ? hints.calls : call_form(chat_template);
  const bool calls = form != nullptr && !tools.empty();
  const bool may_call = calls && hints.call_tag_is_token;
  reasoning_.emplace(chat_template, prompt, hints.begins_in_thoughts,
                     may_call ? call_tag(chat_template, hints.calls) : std::string_view());
  if (!calls && (form == nullptr || !form->tags.around_text)) return;
  CallTags tags = form->tags;
  if (!calls) tags.open = {};
  calls_.emplace(tags, tools);
}

std::string_view AnswerParser::call_tag(std::string_view chat_template, const CallForm* calls) {
  if (has_channels(chat_template)) return {};
  const CallForm* form = calls != nullptr ? calls : call_form(chat_template);
  if (form == nullptr) return {};
  return form->tags.around_text ? form->tags.open : form->tags.first();
}

bool AnswerParser::needs_special_tokens(std::string_view chat_template, const Json& tools,
                                        const CallForm* calls) {
  return thinks_in_special_tokens(chat_template) || has_channels(chat_template) ||
         (!tools.empty() && (calls != nullptr || call_form(chat_template) != nullptr));
}

std::vector<AnswerPart> AnswerParser::add(std::string_view text, bool last, bool cut) {
  std::vector<AnswerPart> parts;
  if (channels_) {
    channels_->add(text, last, parts, cut);
    leave_out_further_calls(parts);
    return parts;
  }
  std::string said;
  for (bool more = true; more;) {
    for (const ReasoningSplitter::Part& part : reasoning_->add(text, last)) {
      if (part.may_call)
        tried_ += part.text;
      else if (part.reasoning)
        give(parts, AnswerPart::Kind::reasoning, part.text);
      else
        said += part.text;
    }
    text = {};
    more = !tried_.empty() && try_call(last, cut, parts);
  }
  if (calls_)
    calls_->add(said, last, parts, cut);
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

// A call ends the thoughts; else they go on behind the tag.
bool AnswerParser::try_call(bool last, bool cut, std::vector<AnswerPart>& parts) {
  constexpr size_t kPiece = 256;                         // what is no call shows it early
  if (read_ == 0) calls_->restart(reasoning_->close());  // which may come late
  std::vector<AnswerPart> read;
  while (read.empty() && read_ < tried_.size()) {
    const size_t bytes = std::min(kPiece, tried_.size() - read_);
    calls_->add(std::string_view(tried_).substr(read_, bytes), false, read);
    read_ += bytes;
  }
  if (read.empty() && last) calls_->add({}, true, read, cut);
  if (read.empty() && !last) return false;
  const std::string text = std::exchange(tried_, {});
  const size_t behind = std::exchange(read_, 0);
  if (!read.empty() && read.front().kind == AnswerPart::Kind::call) {
    for (AnswerPart& part : read) parts.push_back(std::move(part));
    reasoning_->go_on(text.substr(behind), false);
    return true;
  }
  calls_->restart();
  const size_t tag = reasoning_->call_tag().size();
  give(parts, AnswerPart::Kind::reasoning, std::string_view(text).substr(0, tag));
  reasoning_->go_on(text.substr(tag), true);
  return true;
}

}  // namespace sluice
