#include "src/chat/reasoning.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/chat/tags.h"

namespace sluice {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTags{
    {{"<think>", "</think>"},
     {"<thinking>", "</thinking>"},
     {"<seed:think>", "</seed:think>"},
     {"<mm:think>", "</mm:think>"},
     {"[THINK]", "[/THINK]"},
     {"<|START_THINKING|>", "<|END_THINKING|>"},
     {"<|inner_prefix|>", "<|inner_suffix|>"},
     {"<|channel>thought", "<channel|>"}}};
constexpr std::string_view kReasoningSpace = " \t\r\n";

std::string_view without_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kReasoningSpace) + 1);
}

}  // namespace

std::optional<ThoughtTags> thought_tags(std::string_view chat_template, std::string_view prompt,
                                        bool begun) {
  prompt = without_space(prompt);
  for (const auto& [open, close] : kTags) {
    if (prompt.ends_with(open)) return ThoughtTags{open, close, true};
    if (prompt.ends_with(close)) return std::nullopt;
  }
  const auto has = [&](std::string_view tag) {
    return chat_template.find(tag) != chat_template.npos;
  };
  const auto& [first, second] = kTags.front();
  if (begun || (has(second) && !has(first))) return ThoughtTags{first, second, true};
  for (const auto& [open, close] : kTags)
    if (has(close)) return ThoughtTags{open, close, false};
  return std::nullopt;
}

bool thinks_in_special_tokens(std::string_view chat_template) {
  return std::ranges::any_of(kTags, [&](const auto& tags) {
    const bool special = !tags.first.starts_with('<') || tags.first.starts_with("<|");
    return special && chat_template.find(tags.second) != chat_template.npos;
  });
}

ReasoningSplitter::ReasoningSplitter(std::string_view chat_template, std::string_view prompt,
                                     bool begun, std::string_view call_tag)
    : call_tag_(call_tag) {
  const std::optional<ThoughtTags> tags = thought_tags(chat_template, prompt, begun);
  if (!tags || !tags->begun) return;
  state_ = State::begun;
  open_ = tags->open;
  close_ = tags->close;
}

std::vector<ReasoningSplitter::Part> ReasoningSplitter::add(std::string_view text, bool last) {
  std::vector<Part> parts;
  held_ += text;
  while (advance(last, parts)) {
  }
  return parts;
}

// True: there is more to do with what is held.
bool ReasoningSplitter::advance(bool last, std::vector<Part>& parts) {
  switch (state_) {
    case State::start:
      return find_open(last);
    case State::begun:
      return skip_open(last);
    case State::thinking:
      return find_close(last, parts);
    case State::calling:
      if (held_.empty()) return false;
      parts.push_back({.reasoning = true, .text = std::exchange(held_, {}), .may_call = true});
      return false;
    case State::thought: {
      held_.erase(0, std::min(held_.find_first_not_of("\r\n"), held_.size()));
      if (held_.empty()) return false;
      state_ = State::saying;
      return true;
    }
    case State::saying:
      give(false, held_.size(), parts);
      return false;
  }
  return false;
}

// Some models write the tag that the prompt has, once more.
bool ReasoningSplitter::skip_open(bool last) {
  const size_t begin = std::min(held_.find_first_not_of(kReasoningSpace), held_.size());
  const std::string_view text = std::string_view(held_).substr(begin);
  if (!last && text.size() < open_.size() && open_.starts_with(text)) return false;
  if (text.starts_with(open_)) held_.erase(0, begin + open_.size());
  state_ = State::thinking;
  return true;
}

void ReasoningSplitter::go_on(std::string_view text, bool thinks) {
  held_.insert(0, text);
  state_ = thinks ? State::thinking : State::saying;
}

bool ReasoningSplitter::find_open(bool last) {
  const size_t begin = std::min(held_.find_first_not_of(kReasoningSpace), held_.size());
  const std::string_view text = std::string_view(held_).substr(begin);
  bool may_begin = text.empty();
  for (const auto& [open, close] : kTags) {
    if (text.starts_with(open)) {
      close_ = close;
      held_.erase(0, begin + open.size());
      state_ = State::thinking;
      return true;
    }
    may_begin |= open.starts_with(text);
  }
  if (may_begin && !last) return false;
  state_ = State::saying;
  return true;
}

bool ReasoningSplitter::find_close(bool last, std::vector<Part>& parts) {
  if (!begun_) held_.erase(0, std::min(held_.find_first_not_of("\r\n"), held_.size()));
  const size_t end = held_.find(close_);
  const size_t call = call_tag_.empty() ? held_.npos : held_.find(call_tag_);
  if (call < end) {
    give(true, call, parts);
    state_ = State::calling;
    return true;
  }
  // Line breaks before the end are not known to be within the thoughts.
  size_t sure =
      end != std::string::npos ? end
      : last                   ? held_.size()
             : held_.size() - std::max(beginning(held_, close_), beginning(held_, call_tag_));
  if (end != std::string::npos || !last) {
    while (sure > 0 && (held_[sure - 1] == '\n' || held_[sure - 1] == '\r')) --sure;
  }
  give(true, sure, parts);
  if (end == std::string::npos) return false;
  held_.erase(0, end - sure + close_.size());
  state_ = State::thought;
  return true;
}

void ReasoningSplitter::give(bool reasoning, size_t bytes, std::vector<Part>& parts) {
  if (bytes == 0) return;
  parts.push_back({.reasoning = reasoning, .text = held_.substr(0, bytes)});
  held_.erase(0, bytes);
  begun_ = true;
}

}  // namespace sluice
