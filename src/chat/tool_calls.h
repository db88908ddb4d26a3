// Calls of tools within the text of an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/chat/answer_part.h"
#include "src/chat/call_form.h"
#include "src/chat/json_call.h"
#include "src/chat/written_calls.h"

namespace sluice {

// Whether a call may have this name: letters, digits, and a few signs.
bool is_tool_name(std::string_view text);
// Whether a value between tags is a string as it stands, by its schema; else it is JSON, if it is.
template <class SomeJson>
bool is_plain_string(const SomeJson& schema) {
  if (!schema.is_object()) return true;
  if (schema.contains("type")) return schema.at("type") == "string";
  for (const char* keyword : {"$ref", "allOf", "anyOf", "oneOf", "enum", "const", "properties"})
    if (schema.contains(keyword)) return false;
  return true;
}

class ToolCallParser {
 public:
  // `tools`: the request's list, as OpenAI's API has it. Its schemas say which arguments between
  // tags are strings.
  ToolCallParser(const CallTags& tags, Json tools);

  // Gives what is certain once `text` has come; with `last`, all that is left. What looks like a
  // call and is none is content. Space beside calls belongs to nothing.
  void add(std::string_view text, bool last, std::vector<AnswerPart>& parts);

 private:
  enum class State { content, begin, name, object, list, arguments, tags, whole, end };
  using Parts = std::vector<AnswerPart>;

  bool advance(bool last, Parts& parts);  // true: there is more to do with what is held
  bool find_call(bool last, Parts& parts);
  bool begin_call(bool last);
  bool read_name(bool last, Parts& parts);
  bool take_name(std::string_view text, std::string_view end, Parts& parts);
  bool read_object(Parts& parts);
  bool read_list(Parts& parts);
  bool read_arguments(Parts& parts);
  bool read_tag(bool last, Parts& parts);
  bool read_whole(bool last, Parts& parts);
  bool read_end(bool last);
  WrittenCalls written_calls(std::string_view text) const;
  bool go(State next);
  bool give_up(Parts& parts);
  void begin_candidate(size_t bytes);
  void note_name();
  void finish(Parts& parts);  // what a cut answer leaves open
  void skip_space();
  void consume(size_t bytes);
  void give_content(std::string_view text, Parts& parts);
  void give_argument(std::string_view key, std::string_view value, Parts& parts);
  void give_json(std::string_view key, std::string_view json, Parts& parts);
  bool is_string(std::string_view key) const;

  CallTags tags_;
  Json tools_;
  State state_ = State::content;
  std::string held_;     // what is not certain
  std::string raw_;      // of what may be a call, until there is a name
  bool named_ = false;   // there is one
  std::string space_;    // at the end of the content: it belongs to it if more follows
  bool begun_ = false;   // there was content, or a call
  bool called_ = false;  // the last that came was a call
  std::string name_;     // of the present call, where it is no object
  JsonCall object_;      // where it is one
  JsonSpan json_;        // arguments behind a name
  int64_t given_ = 0;    // arguments from between tags
  size_t searched_ = 0;  // bytes of held_ that have not the end of such an argument, or call
  bool listed_ = false;  // the present call is one of a list
};

}  // namespace sluice
