// The text of an answer in parts: content, thoughts, calls of tools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/chat/answer_part.h"
#include "src/chat/channels.h"
#include "src/chat/reasoning.h"
#include "src/chat/tool_calls.h"

namespace sluice {

struct AnswerHints {
  const CallForm* calls = nullptr;  // how calls are written; null: as the template shows them
  bool one_call = false;            // an answer has one: further ones are left out
  bool begins_in_thoughts = false;  // though neither the prompt nor the answer has their first tag
  bool call_tag_is_token = false;   // the one of call_tag()
  bool thought_tags_are_tokens = false;  // <think> and </think>, of which the template says nothing
};

class AnswerParser {
 public:
  // `chat_template` says in which form the model answers; `prompt` is what the answer continues;
  // `tools` is the list of the request (OpenAI's), null where no calls are wanted.
  AnswerParser(std::string_view chat_template, std::string_view prompt, const Json& tools,
               const AnswerHints& hints = {});

  // Returns the tag that begins calls in answers by such a template; empty: there is no tag. Where
  // it is a single token, a call that can be read ends thoughts: models do not write it for other
  // things.
  static std::string_view call_tag(std::string_view chat_template, const CallForm* calls = nullptr);

  // The answer's tags may be special tokens: its text must have them.
  static bool needs_special_tokens(std::string_view chat_template, const Json& tools,
                                   const CallForm* calls = nullptr);

  // Returns what is certain once `text` has come; with `last`, all that is left, of which `cut`
  // says that there would be more. The text of the parts does not depend on how the answer comes in
  // pieces.
  std::vector<AnswerPart> add(std::string_view text, bool last = false, bool cut = false);

 private:
  void leave_out_further_calls(std::vector<AnswerPart>& parts);
  // Returns true once it is known what the present tag within thoughts is.
  bool try_call(bool last, bool cut, std::vector<AnswerPart>& parts);

  std::optional<ChannelParser> channels_;  // instead of both others
  std::optional<ReasoningSplitter> reasoning_;
  std::optional<ToolCallParser> calls_;
  bool one_call_;
  int64_t given_calls_ = 0;
  std::string tried_;  // the text from a tag within thoughts on
  size_t read_ = 0;    // bytes of it that have been read as a call
};

}  // namespace sluice
