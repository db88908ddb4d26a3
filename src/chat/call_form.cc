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

constexpr CallPiece kObject[] = {
    token("<tool_call>"), text("\n{\"name\": \""), kName, text("\", \"arguments\": "), kArguments,
    text("}\n"),          token("</tool_call>")};
constexpr CallPiece kParameters[] = {
    token("<tool_call>"),  text("\n<function="), kName, text(">\n"), kArguments,
    text("</function>\n"), token("</tool_call>")};
constexpr CallPiece kKeys[] = {token("<tool_call>"), kName, text("\n"), kArguments,
                               token("</tool_call>")};
constexpr CallPiece kListBegin[] = {token("[TOOL_CALLS]"), {Kind::blank}, text("[")};
constexpr CallPiece kArgs[] = {token("[TOOL_CALLS]"), kName, token("[ARGS]"), kArguments};
constexpr CallPiece kArgsWithId[] = {
    token("[TOOL_CALLS]"), kName, token("[CALL_ID]"), {Kind::id}, token("[ARGS]"), kArguments};
constexpr CallPiece kBarListBegin[] = {token("<|tool_call|>"), text("[")};
constexpr CallPiece kBarListEnd[] = {text("]"), token("<|/tool_call|>")};
constexpr CallPiece kSectionBegin[] = {token("<|tool_calls_section_begin|>")};
constexpr CallPiece kSection[] = {token("<|tool_call_begin|>"),
                                  text("functions."),
                                  kName,
                                  text(":"),
                                  {Kind::number},
                                  token("<|tool_call_argument_begin|>"),
                                  kArguments,
                                  token("<|tool_call_end|>")};
constexpr CallPiece kSectionEnd[] = {token("<|tool_calls_section_end|>")};
constexpr CallPiece kWideBegin[] = {token("<｜tool▁calls▁begin｜>")};
constexpr CallPiece kWideMarkdown[] = {token("<｜tool▁call▁begin｜>"),
                                       text("function"),
                                       token("<｜tool▁sep｜>"),
                                       kName,
                                       text("\n```json\n"),
                                       kArguments,
                                       text("\n```"),
                                       token("<｜tool▁call▁end｜>")};
constexpr CallPiece kWide[] = {token("<｜tool▁call▁begin｜>"), kName, token("<｜tool▁sep｜>"),
                               kArguments, token("<｜tool▁call▁end｜>")};
constexpr CallPiece kWideEnd[] = {token("<｜tool▁calls▁end｜>")};
constexpr CallPiece kBare[] = {text("{\"name\": \""), kName, text("\", \"parameters\": "),
                               kArguments, text("}")};
constexpr CallPiece kSemicolon[] = {text("; ")};
constexpr CallPiece kChannel[] = {token("<|channel|>"),
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
    form.call = kChannel;
    form.several = false;
  } else if (has("<tool_call>")) {
    form.opens = "<tool_call>";
    form.call = has("<function=")  ? std::span<const CallPiece>(kParameters)
                : has("<arg_key>") ? std::span<const CallPiece>(kKeys)
                                   : kObject;
    form.style = has("<function=")  ? Style::parameters
                 : has("<arg_key>") ? Style::keys
                                    : Style::json;
    form.between = kLine;
  } else if (has("[TOOL_CALLS]")) {
    form.opens = "[TOOL_CALLS]";
    if (has("[ARGS]")) {
      form.call = has("[CALL_ID]") ? std::span<const CallPiece>(kArgsWithId) : kArgs;
    } else {
      form = {.begin = kListBegin,
              .call = kJsonCall,
              .between = kComma,
              .end = kListEnd,
              .opens = form.opens};
    }
  } else if (has("<|tool_call|>")) {
    form = {.begin = kBarListBegin,
            .call = kJsonCall,
            .between = kComma,
            .end = kListEnd,
            .opens = "<|tool_call|>"};
    if (has("<|/tool_call|>")) form.end = kBarListEnd;
  } else if (has("<|tool_call_begin|>")) {
    form = {.begin = kSectionBegin,
            .call = kSection,
            .between = {},
            .end = kSectionEnd,
            .opens = "<|tool_calls_section_begin|>"};
  } else if (has("<｜tool▁call▁begin｜>")) {
    form = {.begin = kWideBegin,
            .call = kWide,
            .between = {},
            .end = kWideEnd,
            .opens = "<｜tool▁calls▁begin｜>"};
    if (has("```json")) {
      form.call = kWideMarkdown;
      form.between = kLine;
    }
  } else if (has("<|python_tag|>") || has("\"parameters\": ")) {
    form.call = kBare;
    form.between = kSemicolon;
    form.bare = true;
  } else {
    return std::nullopt;
  }
  return form;
}

}  // namespace sluice
