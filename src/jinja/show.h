// Values as text: as Python's str() and repr() write them, and as JSON.
#pragma once

#include <optional>
#include <string>

#include "src/jinja/buffer.h"
#include "src/jinja/value.h"

namespace sluice::jinja {

std::string show_real(double value);                   // repr(): 1.0, 1e-07, nan
void append_text_of(const Value& value, Buffer& out);  // str(); of what is undefined nothing
void append_repr(const Value& value, Buffer& out);
std::string text_of(Meter& meter, const Value& value);
std::string repr(Meter& meter, const Value& value);
// Returns a short repr of a value for messages.
std::string brief_repr(Meter& meter, const Value& value);

// json.dumps()'s options.
struct JsonStyle {
  bool ascii = false;
  std::optional<std::string> indent;  // of a level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
void append_json(const Value& value, const JsonStyle& style, Buffer& out);

}  // namespace sluice::jinja
