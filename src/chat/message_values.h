// The messages of a conversation as values of templates.
#pragma once

#include <string>
#include <string_view>

#include "src/jinja/template.h"

namespace sluice {

// The text under `key`; null: there is none, or `object` has no members.
const jinja::Value* text_member(const jinja::Value& object, std::string_view key);
// `object` with another value under `key`.
jinja::Value with_member(jinja::Meter& meter, const jinja::Value& object, std::string_view key,
                         jinja::Value value);
jinja::Value make_message(jinja::Meter& meter, std::string_view role, std::string content);

std::string role_of(const jinja::Value& message);
// The texts of a message's content, a line each; of what has none, nothing.
std::string content_text(const jinja::Value& message);
// The calls of tools that a message makes; null: none.
const jinja::Values* calls_of(const jinja::Value& message);

}  // namespace sluice
