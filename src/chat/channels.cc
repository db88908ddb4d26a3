#include "src/chat/channels.h"

#include <algorithm>
#include <array>

#include "src/chat/tags.h"

namespace sluice {
namespace {

using PartKind = AnswerPart::Kind;

constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>";
constexpr std::array<std::string_view, 4> kEnds{"<|end|>", "<|return|>", "<|call|>", "<|start|>"};

// The word behind `mark`.
std::string_view word_after(std::string_view text, std::string_view mark) {
  const size_t begin = text.find(mark);
  if (begin == text.npos) return {};
  text.remove_prefix(begin + mark.size());
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

}  // namespace

bool has_channels(std::string_view chat_template) {
  return chat_template.find(kChannel) != chat_template.npos;
}

ChannelParser::ChannelParser(std::string_view prompt) {
  // A prompt may begin the answer's first message.
  const size_t start = prompt.rfind("<|start|>assistant");
  if (start == prompt.npos) return;
  held_ = prompt.substr(start);
  std::vector<AnswerPart> none;
  while (in_header_ ? read_header(none) : read_message(false, none)) {
  }
}

void ChannelParser::add(std::string_view text, bool last, std::vector<AnswerPart>& parts) {
  held_ += text;
  while (in_header_ ? read_header(parts) : read_message(last, parts)) {
  }
}

bool ChannelParser::read_header(std::vector<AnswerPart>& parts) {
  const size_t end = held_.find(kMessage);
  if (end == held_.npos) return false;
  const std::string_view header = std::string_view(held_).substr(0, end);
  const std::string_view recipient = word_after(header, "to=functions.");
  kind_ = !recipient.empty()                           ? PartKind::arguments
          : word_after(header, kChannel) == "analysis" ? PartKind::reasoning
                                                       : PartKind::content;
  give(parts, PartKind::call, recipient);
  held_.erase(0, end + kMessage.size());
  in_header_ = false;
  return true;
}

bool ChannelParser::read_message(bool last, std::vector<AnswerPart>& parts) {
  size_t at = held_.size(), keep = 0;
  for (std::string_view end : kEnds) {
    at = std::min(at, held_.find(end));
    keep = std::max(keep, beginning(held_, end));
  }
  in_header_ = at < held_.size();
  if (!in_header_ && !last) at -= keep;
  give(parts, kind_, std::string_view(held_).substr(0, at));
  held_.erase(0, at);
  return in_header_;
}

}  // namespace sluice
