#include "src/chat/conversation.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace sluice {

Conversation Conversation::from_json(std::string_view text, const std::string& where) {
  Conversation conversation;
  conversation.messages_ = parse_json(text, where);
  if (!conversation.messages_.is_array())
    fail(ErrorKind::refused, "{}: must be a list of messages", where);
  for (size_t i = 0; i < conversation.messages_.size(); ++i) {
    const JsonFields fields(conversation.messages_[i], fmt::format("{}: message {}", where, i));
    fields.string("role");
    if (!conversation.messages_[i].contains("tool_calls")) fields.string("content");
  }
  return conversation;
}

void Conversation::add(const ChatMessage& message) {
  messages_.push_back({{"role", message.role}, {"content", message.content}});
  if (!message.reasoning.empty()) messages_.back()["reasoning_content"] = message.reasoning;
}

bool Conversation::has_system() const {
  return !messages_.empty() && messages_[0].value("role", "") == "system";
}

void Conversation::set_system(const std::string& text) {
  if (has_system()) messages_.erase(0);
  if (!text.empty())
    messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

void Conversation::erase(size_t begin, size_t end) {
  messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(begin),
                  messages_.begin() + static_cast<ptrdiff_t>(end));
}

void Conversation::reset() { erase(has_system() ? 1 : 0, messages_.size()); }

std::vector<size_t> Conversation::beginnings() const {
  std::vector<size_t> turns;
  for (size_t i = 0; i < messages_.size(); ++i)
    if (messages_[i].value("role", "") == "user") turns.push_back(i);
  return turns;
}

size_t Conversation::turns() const { return beginnings().size(); }

Json Conversation::take_answer() {
  const std::vector<size_t> turns = beginnings();
  const size_t first = turns.empty() ? 0 : turns.back() + 1;
  Json answer = Json::array();
  if (turns.empty()) return answer;
  for (size_t i = first; i < messages_.size(); ++i) answer.push_back(std::move(messages_[i]));
  erase(first, messages_.size());
  return answer;
}

void Conversation::put_back(Json answer) {
  for (Json& message : answer) messages_.push_back(std::move(message));
}

bool Conversation::drop_last_turn() {
  const std::vector<size_t> turns = beginnings();
  if (turns.empty()) return false;
  erase(turns.back(), messages_.size());
  return true;
}

bool Conversation::drop_oldest_turn(bool keep_last) {
  const std::vector<size_t> turns = beginnings();
  if (turns.size() < (keep_last ? 2U : 1U)) return false;
  erase(has_system() ? 1 : 0, turns.size() > 1 ? turns[1] : messages_.size());
  return true;
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
