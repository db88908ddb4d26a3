#include "src/chat/call_form.h"

namespace sluice {
namespace {

using Kind = CallPiece::Kind;
using Style = CallForm::Style;

constexpr CallPiece kName{Kind::name}, kArguments{Kind::arguments};
constexpr CallPiece text(std::string_view text) { return {Kind::text, text}; }
constexpr CallPiece token(std::string_view text) { return {Kind::token, text}; }

constexpr CallPiece kLine[] = {text("\n")};
constexpr CallPiece kJsonCall[] = {text("{\"name\": \""), kName, text("\", \"arguments\": "),
                                   kArguments, text("}")};
constexpr CallPiece kComma[] = {text(", ")};
constexpr CallPiece kListEnd[] = {text("]")};

constexpr CallPiece kHermes[] = {
    token("<tool_call>"), text("\n{\"name\": \""), kName, text("\", \"arguments\": "), kArguments,
    text("}\n"),          token("</tool_call>")};
constexpr CallPiece kParameters[] = {
    token("<tool_call>"),  text("\n<function="), kName, text(">\n"), kArguments,
    text("</function>\n"), token("</tool_call>")};
constexpr CallPiece kKeys[] = {token("<tool_call>"), kName, text("\n"), kArguments,
                               token("</tool_call>")};
constexpr CallPiece kMistralBegin[] = {token("[TOOL_CALLS]"), {Kind::blank}, text("[")};
constexpr CallPiece kMistral[] = {token("[TOOL_CALLS]"), kName, token("[ARGS]"), kArguments};
constexpr CallPiece kMistralId[] = {
    token("[TOOL_CALLS]"), kName, token("[CALL_ID]"), {Kind::id}, token("[ARGS]"), kArguments};
constexpr CallPiece kPhiBegin[] = {token("<|tool_call|>"), text("[")};
constexpr CallPiece kPhiEnd[] = {text("]"), token("<|/tool_call|>")};
constexpr CallPiece kKimiBegin[] = {token("<|tool_calls_section_begin|>")};
constexpr CallPiece kKimi[] = {token("<|tool_call_begin|>"),
                               text("functions."),
                               kName,
                               text(":"),
                               {Kind::number},
                               token("<|tool_call_argument_begin|>"),
                               kArguments,
                               token("<|tool_call_end|>")};
constexpr CallPiece kKimiEnd[] = {token("<|tool_calls_section_end|>")};
constexpr CallPiece kDeepSeekBegin[] = {token("<｜tool▁calls▁begin｜>")};
constexpr CallPiece kDeepSeekOld[] = {token("<｜tool▁call▁begin｜>"),
                                      text("function"),
                                      token("<｜tool▁sep｜>"),
                                      kName,
                                      text("\n```json\n"),
                                      kArguments,
                                      text("\n```"),
                                      token("<｜tool▁call▁end｜>")};
constexpr CallPiece kDeepSeek[] = {token("<｜tool▁call▁begin｜>"), kName, token("<｜tool▁sep｜>"),
                                   kArguments, token("<｜tool▁call▁end｜>")};
constexpr CallPiece kDeepSeekEnd[] = {token("<｜tool▁calls▁end｜>")};
constexpr CallPiece kLlama[] = {text("{\"name\": \""), kName, text("\", \"parameters\": "),
                                kArguments, text("}")};
constexpr CallPiece kSemicolon[] = {text("; ")};
constexpr CallPiece kHarmony[] = {token("<|channel|>"),
                                  text("commentary to=functions."),
                                  kName,
                                  text(" "),
                                  token("<|constrain|>"),
                                  text("json"),
                                  token("<|message|>"),
                                  kArguments};

}  // namespace

std::optional<CallForm> call_form(std::string_view chat_template) {
  auto has = [&](std::string_view text) { return chat_template.find(text) != text.npos; };
  CallForm form;
  if (has("<|channel|>")) {
    form.call = kHarmony;
    form.several = false;
  } else if (has("<tool_call>")) {
    form.opens = "<tool_call>";
    form.call = has("<function=")  ? std::span<const CallPiece>(kParameters)
                : has("<arg_key>") ? std::span<const CallPiece>(kKeys)
                                   : kHermes;
    form.style = has("<function=")  ? Style::parameters
                 : has("<arg_key>") ? Style::keys
                                    : Style::json;
    form.between = kLine;
  } else if (has("[TOOL_CALLS]")) {
    form.opens = "[TOOL_CALLS]";
    if (has("[ARGS]")) {
      form.call = has("[CALL_ID]") ? std::span<const CallPiece>(kMistralId) : kMistral;
    } else {
      form = {.begin = kMistralBegin,
              .call = kJsonCall,
              .between = kComma,
              .end = kListEnd,
              .opens = form.opens};
    }
  } else if (has("<|tool_call|>")) {
    form = {.begin = kPhiBegin,
            .call = kJsonCall,
            .between = kComma,
            .end = kListEnd,
            .opens = "<|tool_call|>"};
    if (has("<|/tool_call|>")) form.end = kPhiEnd;
  } else if (has("<|tool_call_begin|>")) {
    form = {.begin = kKimiBegin,
            .call = kKimi,
            .between = {},
            .end = kKimiEnd,
            .opens = "<|tool_calls_section_begin|>"};
  } else if (has("<｜tool▁call▁begin｜>")) {
    form = {.begin = kDeepSeekBegin,
            .call = kDeepSeek,
            .between = {},
            .end = kDeepSeekEnd,
            .opens = "<｜tool▁calls▁begin｜>"};
    if (has("```json")) {
      form.call = kDeepSeekOld;
      form.between = kLine;
    }
  } else if (has("<|python_tag|>") || has("\"parameters\": ")) {
    form.call = kLlama;
    form.between = kSemicolon;
    form.bare = true;
  } else {
    return std::nullopt;
  }
  return form;
}

}  // namespace sluice
