#include "src/chat/call_form.h"

namespace sluice {
namespace {

using PieceKind = CallPiece::Kind;
using Style = CallForm::Style;

constexpr CallPiece kName{PieceKind::name}, kArguments{PieceKind::arguments};
constexpr CallPiece text_piece(std::string_view text) { return {PieceKind::text, text}; }
constexpr CallPiece token_piece(std::string_view text) { return {PieceKind::token, text}; }

constexpr CallPiece kLine[] = {text_piece("\n")};
constexpr CallPiece kJsonCall[] = {text_piece("{\"name\": \""), kName,
                                   text_piece("\", \"arguments\": "), kArguments, text_piece("}")};
constexpr CallPiece kComma[] = {text_piece(", ")};
constexpr CallPiece kListEnd[] = {text_piece("]")};

constexpr CallPiece kObject[] = {token_piece("<tool_call>"),
                                 text_piece("\n{\"name\": \""),
                                 kName,
                                 text_piece("\", \"arguments\": "),
                                 kArguments,
                                 text_piece("}\n"),
                                 token_piece("</tool_call>")};
constexpr CallPiece kParameters[] = {
    token_piece("<tool_call>"),  text_piece("\n<function="), kName, text_piece(">\n"), kArguments,
    text_piece("</function>\n"), token_piece("</tool_call>")};
constexpr CallPiece kKeys[] = {token_piece("<tool_call>"), kName, text_piece("\n"), kArguments,
                               token_piece("</tool_call>")};
constexpr CallPiece kListBegin[] = {
    token_piece("[TOOL_CALLS]"), {PieceKind::blank}, text_piece("[")};
constexpr CallPiece kArgs[] = {token_piece("[TOOL_CALLS]"), kName, token_piece("[ARGS]"),
                               kArguments};
constexpr CallPiece kArgsWithId[] = {token_piece("[TOOL_CALLS]"), kName,
                                     token_piece("[CALL_ID]"),    {PieceKind::id},
                                     token_piece("[ARGS]"),       kArguments};
constexpr CallPiece kBarListBegin[] = {token_piece("<|tool_call|>"), text_piece("[")};
constexpr CallPiece kBarListEnd[] = {text_piece("]"), token_piece("<|/tool_call|>")};
constexpr CallPiece kSectionBegin[] = {token_piece("<|tool_calls_section_begin|>")};
constexpr CallPiece kSection[] = {token_piece("<|tool_call_begin|>"),
                                  text_piece("functions."),
                                  kName,
                                  text_piece(":"),
                                  {PieceKind::number},
                                  token_piece("<|tool_call_argument_begin|>"),
                                  kArguments,
                                  token_piece("<|tool_call_end|>")};
constexpr CallPiece kSectionEnd[] = {token_piece("<|tool_calls_section_end|>")};
constexpr CallPiece kWideBegin[] = {token_piece("<｜tool▁calls▁begin｜>")};
constexpr CallPiece kWideMarkdown[] = {token_piece("<｜tool▁call▁begin｜>"),
                                       text_piece("function"),
                                       token_piece("<｜tool▁sep｜>"),
                                       kName,
                                       text_piece("\n```json\n"),
                                       kArguments,
                                       text_piece("\n```"),
                                       token_piece("<｜tool▁call▁end｜>")};
constexpr CallPiece kWide[] = {token_piece("<｜tool▁call▁begin｜>"), kName,
                               token_piece("<｜tool▁sep｜>"), kArguments,
                               token_piece("<｜tool▁call▁end｜>")};
constexpr CallPiece kWideEnd[] = {token_piece("<｜tool▁calls▁end｜>")};
constexpr CallPiece kBare[] = {text_piece("{\"name\": \""), kName,
                               text_piece("\", \"parameters\": "), kArguments, text_piece("}")};
constexpr CallPiece kSemicolon[] = {text_piece("; ")};
constexpr CallPiece kChannelCall[] = {token_piece("<|channel|>"),
                                      text_piece("commentary to=functions."),
                                      kName,
                                      text_piece(" "),
                                      token_piece("<|constrain|>"),
                                      text_piece("json"),
                                      token_piece("<|message|>"),
                                      kArguments};

constexpr CallTags kCallTags{.open = "<tool_call>", .close = "</tool_call>"};
constexpr CallTags kLinesTags{
    .open = "<tool_call>", .close = "</tool_call>", .lines = true, .lone = "<function="};
constexpr CallTags kCallsTags{.open = "[TOOL_CALLS]"};
constexpr CallTags kWideTags{.open = "<｜tool▁call▁begin｜>",
                             .close = "<｜tool▁call▁end｜>",
                             .before = "<｜tool▁calls▁begin｜>",
                             .behind = "<｜tool▁calls▁end｜>"};
constexpr CallForm kBareForm{
    .tags = {.open = "<|python_tag|>", .bare = true}, .call = kBare, .between = kSemicolon};

constexpr CallTags dsml(std::string_view open, std::string_view close) {
  return {.open = open,
          .close = close,
          .notation = CallTags::Notation::invokes,
          .prefix = "｜DSML｜",
          .lone = "<｜DSML｜invoke name=\""};
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
               .notation = CallTags::Notation::invokes,
               .lone = "<invoke name=\""}}},
    {"｜DSML｜",
     "function_calls",
     {.tags = dsml("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")}},
    {"｜DSML｜", "", {.tags = dsml("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")}},
    {"<seed:tool_call>",
     "<function=",
     {.tags = {.open = "<seed:tool_call>", .close = "</seed:tool_call>", .lone = "<function="}}},
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
    {"<start_function_call>",
     "<escape>",
     {.tags = {.open = "<start_function_call>",
               .close = "<end_function_call>",
               .behind = "<start_function_response>",
               .notation = CallTags::Notation::keyed,
               .quote = "<escape>"}}},
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
    {"<|channel|>", "", {.call = kChannelCall, .several = false}},
    {"<tool_call>",
     "<function=",
     {.tags = kLinesTags, .call = kParameters, .between = kLine, .style = Style::parameters}},
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
    {"<|python_start|>",
     "<|python_end|>",
     {.tags = {.open = "<|python_start|>", .close = "<|python_end|>", .bare = true},
      .call = kBare}},
    {"<|python_tag|>", "", kBareForm},
    {"\"parameters\": ", "", kBareForm}};

}  // namespace

const CallForm& generic_call_form() {
  static constexpr CallForm kGeneric{.tags = kCallTags, .call = kObject, .between = kLine};
  return kGeneric;
}

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
