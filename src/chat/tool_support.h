// The way to tell a model of tools, and its form of calls: as its chat template shows them,
// or, where that shows none, in a text of the system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/chat/call_form.h"
#include "src/jinja/template.h"

namespace sluice {

class ChatTemplate;

enum class ToolFormat : uint8_t {
  automatic,  // the template's own form, else the generic one
  generic,    // the generic one
  none,       // the template's own form, else tools are refused
};

struct ToolSupport {
  const CallForm* calls = nullptr;  // instead of the template's own; null: that one
  bool told = false;                // a text tells of the tools: the template is given none
  bool untold = false;              // nothing tells of them
  bool written = false;             // texts stand for earlier calls, and for their results
  bool refused = false;             // there are no tools for this model
  bool one_call = false;            // the template shows one call of a message only

  std::string description() const;  // one sentence for a log
};
ToolSupport find_tool_support(ChatTemplate& chat_template, ToolFormat format);

// The texts that stand for calls and results in a conversation. A message of the user that follows
// results is one with them.
jinja::Value with_written_calls(jinja::Meter& meter, const jinja::Value& messages,
                                const CallForm& form);
// The conversation with a text of the system, at the end of its first message, that tells of
// `tools`.
jinja::Value with_tools_told(jinja::Meter& meter, const jinja::Value& messages,
                             const jinja::Value& tools, const CallForm& form);

// Applies `support`; where a text tells of the tools, the template gets none.
void apply_tool_support(jinja::Context& context, const ToolSupport& support,
                        std::string_view where);

}  // namespace sluice
