// Calls of tools in forms that are read as a whole: as Python's calls, in Gemma's notation, in XML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct WrittenCall {
  struct Argument {
    enum class Kind : uint8_t {
      json,
      text,       // a string as it stands
      by_schema,  // a string as it stands where the schema says so, else JSON
    };
    std::string key;
    std::string value;
    Kind kind = Kind::json;
  };
  std::string name;
  std::vector<Argument> arguments;
};

using WrittenCalls = std::optional<std::vector<WrittenCall>>;  // nullopt: the text is no calls

// A literal of Python, or of JSON, as JSON.
std::optional<std::string> read_python_value(std::string_view text);
// [NAME(KEY=VALUE, ...), ...], or NAME(...) in each line; values are Python's literals.
WrittenCalls read_python_calls(std::string_view text);
// call:NAME{KEY:VALUE,...}, where <|"|> is the quotation mark.
WrittenCalls read_keyed_calls(std::string_view text);
// [{NAME: {KEY: VALUE, ...}}, ...]
WrittenCalls read_named_objects(std::string_view text);
// <invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>..., where `prefix` stands
// before the names of tags. A parameter may say string="true" or "false".
WrittenCalls read_invokes(std::string_view text, std::string_view prefix);

}  // namespace sluice
