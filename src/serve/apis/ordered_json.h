// Members of the bodies of requests.
#pragma once

#include <string>

#include "src/base/json.h"

namespace sluice {

// Error(refused) for an object in it that takes long to read (grammar::has_large_object).
void refuse_large_objects(const OrderedJson& json, const std::string& where);
// The same for a number that is not finite.
void refuse_not_finite(const OrderedJson& json, const std::string& where);

// Null, false, or an empty text, list or object.
bool asks_for_nothing(const OrderedJson& value);
// The member of that name; null where there is none, or `object` is no object.
const OrderedJson& member(const OrderedJson& object, const char* key);
// Not there, or null.
inline bool is_null(const OrderedJson& object, const char* key) {
  return member(object, key).is_null();
}
// Error(refused), which begins with `where`, for what is no string.
std::string string_of(const OrderedJson& object, const char* key, const std::string& where);
// An object, or an empty one where it is not there or null. Error as above for what is no object.
OrderedJson object_of(const OrderedJson& object, const char* key, const std::string& where);
// The content of a message: a text, or the list of its parts where it has several. Error as above.
OrderedJson content_of(const OrderedJson& content, const std::string& where);
// A text, or a list of {type, text}, whose types end with "text", and of {type: "refusal",
// refusal}; joined by line breaks. Error as above for everything else.
std::string text_of(const OrderedJson& content, const std::string& where);

}  // namespace sluice
