#include "src/chat/channels.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "src/chat/json_call.h"
#include "src/chat/literals.h"
#include "src/chat/tags.h"

namespace sluice {
namespace {

using PartKind = AnswerPart::Kind;

constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>";
constexpr std::string_view kStart = "<|start|>assistant";
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
  const size_t start = prompt.rfind(kStart);
  if (start == prompt.npos) return;
  held_ = prompt.substr(start);
  std::vector<AnswerPart> none;
  while (in_header_ ? read_header() : read_message(false, false, none)) {
  }
}

void ChannelParser::add(std::string_view text, bool last, std::vector<AnswerPart>& parts,
                        bool cut) {
  held_ += text;
  while (in_header_ ? read_header() : read_message(last, cut, parts)) {
  }
  if (last && in_header_ && first_) give_plain(parts);
}

// Some fine-tuned models answer in no channel.
void ChannelParser::give_plain(std::vector<AnswerPart>& parts) const {
  std::string_view text = held_;
  if (text.starts_with(kStart)) text.remove_prefix(kStart.size());
  const size_t end = std::min(text.find(kEnds.front()), text.find(kEnds[1]));
  text = text.substr(0, end);
  const bool header =
      text.starts_with(" to=") || text.starts_with("<|") || text.find(kChannel) != text.npos;
  if (!header) give(parts, PartKind::content, text);
}

bool ChannelParser::read_header() {
  const size_t end = held_.find(kMessage);
  if (end == held_.npos) return false;
  const std::string_view header = std::string_view(held_).substr(0, end);
  const std::string_view recipient = word_after(header, "to=functions.");
  kind_ = !recipient.empty()                           ? PartKind::arguments
          : word_after(header, kChannel) == "analysis" ? PartKind::reasoning
                                                       : PartKind::content;
  name_ = recipient;
  held_.erase(0, end + kMessage.size());
  in_header_ = first_ = false;
  return true;
}

bool ChannelParser::read_message(bool last, bool cut, std::vector<AnswerPart>& parts) {
  size_t at = held_.size(), keep = 0;
  for (std::string_view end : kEnds) {
    at = std::min(at, held_.find(end));
    keep = std::max(keep, beginning(held_, end));
  }
  in_header_ = at < held_.size();
  if (!in_header_ && !last) at -= keep;
  const std::string_view text = std::string_view(held_).substr(0, at);
  if (kind_ != PartKind::arguments) give(parts, kind_, text);
  if (kind_ == PartKind::arguments) arguments_ += text;
  held_.erase(0, at);
  if (in_header_ || last) give_call(in_header_ || !cut, parts);
  return in_header_;
}

void ChannelParser::give_call(bool complete, std::vector<AnswerPart>& parts) {
  if (name_.empty()) return;
  const std::string text = std::exchange(arguments_, {});
  const std::string name = std::exchange(name_, {});
  JsonExtent extent;
  size_t end = 0;
  while (end < text.size() && !extent.done()) extent.take(text[end++]);
  // Brackets that close nothing may follow.
  const bool rest = text.find_first_not_of(" \t\r\n}]", end) != text.npos;
  std::optional<std::string> json = read_object_text(rest ? text : text.substr(0, end));
  const std::optional<std::string> missing = extent.missing();
  if (!json && complete && extent.begun() && missing) json = read_object_text(text + *missing);
  if (!json) return give(parts, PartKind::content, text);
  give(parts, PartKind::call, name);
  give(parts, PartKind::arguments, *json);
}

}  // namespace sluice
