// Calls of tools in forms that are read as a whole: as Python's calls, in Gemma's notation, in XML.
#pragma once

#include <cstdint>
#include <functional>
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
  std::string unread = {};  // instead of all this: a text between calls that is none
};

using WrittenCalls = std::optional<std::vector<WrittenCall>>;  // nullopt: the text is no calls

// [NAME(KEY=VALUE, ...), ...], or NAME(...) in each line; values are Python's literals. A call that
// cannot be read leaves the others what they are.
// `closed`: the tag behind them shows that nothing more comes, so that a bracket may be missing.
WrittenCalls read_python_calls(std::string_view text, bool closed);
// call:NAME{KEY:VALUE,...}, where <|"|> is the quotation mark.
WrittenCalls read_keyed_calls(std::string_view text, bool closed);
// [{NAME: {KEY: VALUE, ...}}, ...]
WrittenCalls read_named_objects(std::string_view text);
// <invoke name="NAME"><parameter name="KEY">VALUE</parameter>...</invoke>..., where `prefix` stands
// before the names of tags. A parameter may say string="true" or "false".
// `has`: whether a tool has an argument of this name.
using HasArgument = std::function<bool(std::string_view tool, std::string_view key)>;
WrittenCalls read_invokes(std::string_view text, std::string_view prefix, const HasArgument& has);

}  // namespace sluice
