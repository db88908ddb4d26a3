#include "src/chat/conversation.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace sluice {

Conversation Conversation::from_json(std::string_view text, const std::string& where) {
  const Json list = parse_json(text, where);
  if (!list.is_array()) fail(ErrorKind::refused, "{}: must be a list of messages", where);
  Conversation conversation;
  for (const Json& each : list) {
    const JsonFields fields(each,
                            fmt::format("{}: message {}", where, conversation.messages_.size()));
    conversation.add({.role = fields.string("role"),
                      .content = fields.string("content"),
                      .reasoning = fields.string_or("reasoning_content", {})});
  }
  return conversation;
}

Json Conversation::json() const {
  Json list = Json::array();
  for (const ChatMessage& message : messages_) {
    list.push_back({{"role", message.role}, {"content", message.content}});
    if (!message.reasoning.empty()) list.back()["reasoning_content"] = message.reasoning;
  }
  return list;
}

void Conversation::set_system(std::string text) {
  const bool has = !messages_.empty() && messages_.front().role == "system";
  if (has) messages_.erase(messages_.begin());
  if (text.empty()) return;
  messages_.insert(messages_.begin(),
                   {.role = "system", .content = std::move(text), .reasoning = {}});
}

void Conversation::reset() {
  const bool has = !messages_.empty() && messages_.front().role == "system";
  messages_.resize(has ? 1 : 0);
}

size_t ConversationIds::common(std::string_view text) const {
  return static_cast<size_t>(std::ranges::mismatch(text, text_).in1 - text.begin());
}

std::vector<int32_t> ConversationIds::of(std::string_view text) const {
  const size_t same = common(text);
  for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark) {
    if (mark->bytes > same) continue;
    std::vector<int32_t> more = tokenizer_.encode(text.substr(mark->bytes), false);
    if (more.empty() || !is_special(more.front())) break;  // earlier answers end alike
    more.insert(more.begin(), ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(mark->tokens));
    return more;
  }
  return tokenizer_.encode(text, false);
}

// The token that ended the answer is the template's to write.
void ConversationIds::learn(std::string text, std::vector<int32_t> prompt,
                            std::vector<int32_t> generated) {
  while (!generated.empty() && is_special(generated.back())) generated.pop_back();
  const size_t same = common(text);
  const size_t same_ids =
      static_cast<size_t>(std::ranges::mismatch(prompt, ids_).in1 - prompt.begin());
  std::erase_if(marks_,
                [&](const Mark& mark) { return mark.bytes > same || mark.tokens > same_ids; });
  text_ = std::move(text) + tokenizer_.decode(generated, false);
  ids_ = std::move(prompt);
  ids_.insert(ids_.end(), generated.begin(), generated.end());
  marks_.push_back({.bytes = text_.size(), .tokens = ids_.size()});
}

}  // namespace sluice
