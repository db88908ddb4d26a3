// The input of a chat template.
#pragma once

#include <string_view>

#include "src/jinja/template.h"

namespace sluice {

// Sets the variables of `request`: a list of messages, or an object of {messages,
// add_generation_prompt, tools, documents, variables}, of which the last is an object of further
// ones. Error(refused) that begins with `where` for messages that are none.
void set_chat(jinja::Context& context, const jinja::Value& request, bool add_generation_prompt,
              std::string_view where);

// Does what transformers' apply_chat_template() does beside: empty lists of tools and documents
// become none; a message's reasoning has every name that templates know.
void complete_chat(jinja::Context& context);

}  // namespace sluice
