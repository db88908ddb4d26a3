// Bodies whose objects keep the order of their keys: templates show tools in it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/base/json.h"

namespace sluice {

using Ordered = nlohmann::ordered_json;

// Error(refused) for an object in it that takes long to order (grammar::has_large_object), before
// its text is parsed as Ordered.
void refuse_large_objects(const Json& json, const std::string& where);
// Reads a text of JSON, or gives a discarded value. An integer beyond 64 bits keeps its digits, as
// the bytes of a binary value, which dump_ordered writes as they were.
Ordered parse_ordered(std::string_view text);
std::string dump_ordered(const Ordered& value);
// The text of a member's value, of an object that is valid JSON; empty: it has no such member.
std::string_view member_text(std::string_view object, std::string_view key);

// Not there, or null.
bool is_null(const Ordered& object, const char* key);
// Error(refused), which begins with `where`, for what is no string.
std::string string_of(const Ordered& object, const char* key, const std::string& where);
// An object, or an empty one where it is not there or null. Error as above for what is no object.
Ordered object_of(const Ordered& object, const char* key, const std::string& where);
// The content of a message: a text, or the list of its parts where it has several. Error as above.
Ordered content_of(const Ordered& content, const std::string& where);
// A text, or a list of {type, text}, whose types end with "text", and of {type: "refusal",
// refusal}; joined by line breaks. Error as above for everything else.
std::string text_of(const Ordered& content, const std::string& where);

}  // namespace sluice
