// A call of a tool that a model writes as JSON: {"name": NAME, "arguments": {...}}, with the keys
// "tool_name", "function" and "parameters", or within {"type": "function", "function": {...}}.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Finds the end of an object of JSON by its quotes and brackets, character by character.
class JsonExtent {
 public:
  // `outer`: so many of the outermost objects are the form's own, and the arguments.
  explicit JsonExtent(size_t outer = 1) : outer_(outer) {}

  void take(char c);
  bool begun() const { return previous_ != '\0'; }
  bool quoted() const { return quote_ != '\0'; }
  bool done() const { return begun() && levels_.empty(); }  // with the last character
  // Returns true if `c` shows that the outermost object has ended before it, in a list of such.
  bool ended_before(char c) const;
  // Strings of the outermost object that have ended.
  int strings() const { return strings_; }
  // Returns what has to come for the value to end here; nothing: braces may be missing somewhere
  // else.
  std::optional<std::string> missing() const;

 private:
  struct Level {
    char close = '\0';
    bool comma = false;  // there are several members
  };
  bool in_object(size_t level) const { return levels_[level].close == '}'; }
  bool splits(size_t level) const;

  size_t outer_;
  std::vector<Level> levels_;
  char quote_ = '\0';  // of the present string
  bool escaped_ = false;
  char previous_ = '\0';  // that is no space
  int strings_ = 0;
  bool broken_ = false;  // a bracket closes another's
  bool splits_ = false;  // a brace may be missing within an inner object
};

struct JsonCall {
  std::string name;
  std::string arguments;  // an object of JSON
  std::string id = {};    // that the model wrote; empty: none
  bool plain = true;      // there is nothing beside these
};

// Nothing: this is no call, or it is not certain which.
std::optional<JsonCall> read_json_call(std::string_view text);
// Returns true if such an object may have a member of this key first.
bool begins_json_call(std::string_view key);
// Returns true if a call may have this id, which tells it from others.
bool is_call_id(std::string_view text);

}  // namespace sluice
