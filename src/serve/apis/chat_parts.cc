#include "src/serve/apis/chat_parts.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Returns the bytes of a tree of JSON: values in lists that have grown, and members that are nodes
// of a tree.
uint64_t tree_bytes(const Json& json) {
  constexpr uint64_t kValue = 32, kMember = 128, kString = 48;
  uint64_t bytes = kValue;
  if (json.is_string()) bytes += kString + json.get_ref<const std::string&>().size();
  if (!json.is_structured()) return bytes;
  for (const auto& [key, value] : json.items())
    bytes += tree_bytes(value) + (json.is_object() ? kMember + key.size() : 0);
  return bytes;
}

}  // namespace

uint64_t ChatForm::held_bytes(int64_t choices) const {
  constexpr uint64_t kOnceMore = 1;  // the parser of a whole answer
  return (static_cast<uint64_t>(choices) + 1 + kOnceMore) * tree_bytes(tools) +
         tree_bytes(tool_choice) + tree_bytes(echo);
}

void ChatForm::set_prompt(std::string_view text) {
  constexpr size_t kEnd = 256;
  prompt_end = text.substr(text.size() - std::min(text.size(), kEnd));
}

std::string CallIds::of(const std::string& written, std::string own) {
  const bool known = std::ranges::find(known_, written) != known_.end();
  if (!written.empty() && !known) own = written;
  return known_.emplace_back(std::move(own));
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
      calls.push_back({std::move(part.text), {}, std::move(part.id)});
      break;
    case AnswerPart::Kind::arguments:
      calls.back().arguments += part.text;
      break;
  }
}

AnswerParser whole_parser(const ChatForm& form, const RequestResult& result) {
  AnswerHints hints = form.hints;
  if (hints.thought_tags_are_tokens && result.text.find("<think>") == std::string::npos &&
      result.text.find("</think>") != std::string::npos)
    hints.begins_in_thoughts = true;
  return {form.chat_template, form.prompt_end, form.tools, hints};
}

ChatReply chat_reply(const ChatForm& form, const RequestResult& result) {
  AnswerParser parser = whole_parser(form, result);
  ChatReply reply;
  for (AnswerPart& part : parser.add(result.text, true, is_cut(result))) reply.add(std::move(part));
  return reply;
}

bool is_cut(const RequestResult& result) {
  return result.finish_reason != "stop" || !result.stop.empty();
}

}  // namespace sluice
