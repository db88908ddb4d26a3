// The messages of a request to OpenAI's API, as chat templates expect them.
#pragma once

#include <string_view>

#include "src/jinja/template.h"

namespace sluice {

// The form in which a template expects messages.
struct MessageStyle {
  bool developer = true;        // it knows that role; else such messages are the system's
  bool short_ids = false;       // calls have ids of nine letters and digits; else any
  bool text_arguments = false;  // of calls are texts of JSON; else objects
};
MessageStyle message_style(std::string_view chat_template);

// Turns a list of messages into what templates take: contents are texts or lists of texts, a
// missing one is empty, other members that are null are missing, as is a list of no tool calls, and
// the arguments of tool calls, which the API has as JSON in a text, are as `style` says.
// Error(refused) that begins with `where` for invalid messages, and for contents other than texts.
jinja::Value api_messages(jinja::Meter& meter, const jinja::Value& messages,
                          const MessageStyle& style, std::string_view where);

}  // namespace sluice
