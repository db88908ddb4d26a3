// Bodies whose objects keep the order of their keys: templates show tools in it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice {

using Ordered = nlohmann::ordered_json;

// Not there, or null.
bool is_null(const Ordered& object, const char* key);
// Error(refused), which begins with `where`, for what is no string.
std::string string_of(const Ordered& object, const char* key, const std::string& where);
// A text, or a list of {type, text}, whose types end with "text"; joined by line breaks. Error as
// above for everything else.
std::string text_of(const Ordered& content, const std::string& where);

}  // namespace sluice
