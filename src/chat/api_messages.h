// The messages of a request to OpenAI's API, as chat templates expect them.
#pragma once

#include <string_view>

#include "src/jinja/template.h"

namespace sluice {

// Of a list of messages: a content of several texts is one text, a missing one is empty, and the
// arguments of tool calls, which the API has as JSON in a text, are objects. Error(refused) that
// begins with `where` for what is no message, and for contents other than texts.
jinja::Value api_messages(jinja::Meter& meter, const jinja::Value& messages,
                          std::string_view where);

}  // namespace sluice
