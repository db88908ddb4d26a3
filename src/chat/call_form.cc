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

constexpr CallTags kCallTags{.open = "<tool_call>", .close = "</tool_call>"};
constexpr CallTags kCallsTags{.open = "[TOOL_CALLS]"};
constexpr CallTags kWideTags{.open = "<｜tool▁call▁begin｜>",
                             .close = "<｜tool▁call▁end｜>",
                             .before = "<｜tool▁calls▁begin｜>",
                             .behind = "<｜tool▁calls▁end｜>"};
constexpr CallForm kBareForm{
    .tags = {.open = "<|python_tag|>", .bare = true}, .call = kBare, .between = kSemicolon};

constexpr CallTags dsml(std::string_view open, std::string_view close) {
  return {
      .open = open, .close = close, .notation = CallTags::Notation::invokes, .prefix = "｜DSML｜"};
}

// The first whose texts are both in a template is its form.
struct Known {
  std::string_view has;
  std::string_view also;  // empty: nothing
  CallForm form;
};
constexpr Known kKnown[] = {
    {"<minimax:tool_call>",
     "<invoke",
     {.tags = {.open = "<minimax:tool_call>",
               .close = "</minimax:tool_call>",
               .notation = CallTags::Notation::invokes}}},
    {"｜DSML｜",
     "function_calls",
     {.tags = dsml("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")}},
    {"｜DSML｜", "", {.tags = dsml("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")}},
    {"<seed:tool_call>",
     "<function=",
     {.tags = {.open = "<seed:tool_call>", .close = "</seed:tool_call>"}}},
    {"<TOOLCALL>", "", {.tags = {.open = "<TOOLCALL>", .close = "</TOOLCALL>"}}},
    {"<tool_calls>",
     "</tool_calls>",
     {.tags = {.open = "<tool_calls>", .close = "</tool_calls>", .several = true}}},
    {"<longcat_tool_call>",
     "",
     {.tags = {.open = "<longcat_tool_call>", .close = "</longcat_tool_call>"}}},
    {"<|START_ACTION|>",
     "",
     {.tags = {.open = "<|START_ACTION|>",
               .close = "<|END_ACTION|>",
               .before = "<|START_RESPONSE|>",
               .behind = "<|END_RESPONSE|>",
               .around_text = true}}},
    {"<|tool_call>",
     "<tool_call|>",
     {.tags = {.open = "<|tool_call>",
               .close = "<tool_call|>",
               .behind = "<|tool_response>",
               .notation = CallTags::Notation::keyed}}},
    {"List of tools: ",
     "",
     {.tags = {.open = "<|tool_call_start|>",
               .close = "<|tool_call_end|>",
               .notation = CallTags::Notation::python}}},
    {"<|tool_call_start|>",
     "",
     {.tags = {.open = "<|tool_call_start|>",
               .close = "<|tool_call_end|>",
               .notation = CallTags::Notation::python}}},
    {"<|function_call|>", "", {.tags = {.open = "<|function_call|>", .behind = "<|message_sep|>"}}},
    {"function call",
     "<|role_sep|>",
     {.tags = {.open = "function call<|role_sep|>", .behind = "<|message_sep|>"}}},
    {"<function_calls>",
     "",
     {.tags = {.open = "<function_calls>",
               .close = "</function_calls>",
               .notation = CallTags::Notation::python}}},
    {"<|tools_prefix|>",
     "",
     {.tags = {.open = "<|tools_prefix|>",
               .close = "<|tools_suffix|>",
               .notation = CallTags::Notation::named_objects}}},
    {"<|channel|>", "", {.call = kChannel, .several = false}},
    {"<tool_call>",
     "<function=",
     {.tags = kCallTags, .call = kParameters, .between = kLine, .style = Style::parameters}},
    {"<tool_call>",
     "<arg_key>",
     {.tags = kCallTags, .call = kKeys, .between = kLine, .style = Style::keys}},
    {"<tool_call>", "", {.tags = kCallTags, .call = kObject, .between = kLine}},
    {"[TOOL_CALLS]", "[CALL_ID]", {.tags = kCallsTags, .call = kArgsWithId}},
    {"[TOOL_CALLS]", "[ARGS]", {.tags = kCallsTags, .call = kArgs}},
    {"[TOOL_CALLS]",
     "",
     {.tags = kCallsTags,
      .begin = kListBegin,
      .call = kJsonCall,
      .between = kComma,
      .end = kListEnd}},
    {"<|tool_call|>",
     "<|/tool_call|>",
     {.tags = {.open = "<|tool_call|>", .behind = "<|/tool_call|>"},
      .begin = kBarListBegin,
      .call = kJsonCall,
      .between = kComma,
      .end = kBarListEnd}},
    {"<|tool_call|>",
     "",
     {.tags = {.open = "<|tool_call|>", .behind = "<|/tool_call|>"},
      .begin = kBarListBegin,
      .call = kJsonCall,
      .between = kComma,
      .end = kListEnd}},
    {"<|tool_call_begin|>",
     "",
     {.tags = {.open = "<|tool_call_begin|>",
               .close = "<|tool_call_end|>",
               .before = "<|tool_calls_section_begin|>",
               .behind = "<|tool_calls_section_end|>"},
      .begin = kSectionBegin,
      .call = kSection,
      .end = kSectionEnd}},
    {"<｜tool▁call▁begin｜>",
     "```json",
     {.tags = kWideTags,
      .begin = kWideBegin,
      .call = kWideMarkdown,
      .between = kLine,
      .end = kWideEnd}},
    {"<｜tool▁call▁begin｜>",
     "",
     {.tags = kWideTags, .begin = kWideBegin, .call = kWide, .end = kWideEnd}},
    {"<|python_tag|>", "", kBareForm},
    {"\"parameters\": ", "", kBareForm}};

}  // namespace

const CallForm* call_form(std::string_view chat_template) {
  auto has = [&](std::string_view text) { return chat_template.find(text) != text.npos; };
  for (const Known& known : kKnown)
    if (has(known.has) && has(known.also)) return &known.form;
  return nullptr;
}

const CallForm* exact_call_form(std::string_view chat_template) {
  const CallForm* form = call_form(chat_template);
  return form != nullptr && !form->call.empty() ? form : nullptr;
}

}  // namespace sluice
