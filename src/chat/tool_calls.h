// Calls of tools within the text of an answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/chat/answer_part.h"
#include "src/chat/call_form.h"
#include "src/chat/json_call.h"
#include "src/chat/schema_types.h"
#include "src/chat/written_calls.h"

namespace sluice {

// Returns whether a call may have this name: letters, digits, and a few signs.
bool is_tool_name(std::string_view text);

class ToolCallParser {
 public:
  // `tools`: the request's list, as OpenAI's API has it. Its schemas say which arguments between
  // tags are strings.
  ToolCallParser(const CallTags& tags, Json tools);

  // Gives what is certain once `text` has come; with `last`, all that is left. `cut`: there would
  // be more. A call is given when it has ended, so that its arguments are an object of JSON. What
  // looks like a call and is none, or may be another than the model meant, is content. Space beside
  // calls belongs to nothing.
  void add(std::string_view text, bool last, std::vector<AnswerPart>& parts, bool cut = false);
  // For another text. `behind`: a tag that belongs to nothing.
  void restart(std::string_view behind = {});

 private:
  enum class State { content, begin, name, object, list, arguments, tags, whole, end, no_call };
  using Parts = std::vector<AnswerPart>;

  bool advance(Parts& parts);  // true: there is more to do with what is held
  bool find_call(Parts& parts);
  bool begin_call(Parts& parts);
  bool begin_object();
  bool read_name(Parts& parts);
  bool take_name(std::string_view text, std::string_view end, Parts& parts);
  bool read_object(Parts& parts);
  bool take_object(const std::optional<std::string>& missing, Parts& parts);
  bool read_list(Parts& parts);
  bool read_arguments(Parts& parts);
  bool take_arguments(const std::optional<std::string>& missing, Parts& parts);
  bool read_tag(Parts& parts);
  bool read_parameter(Parts& parts);
  bool read_key(Parts& parts);
  bool take_value(std::string_view key, std::string_view value, size_t end);
  bool read_whole(Parts& parts);
  bool read_end(Parts& parts);
  bool read_behind(Parts& parts);
  bool skip_no_call(Parts& parts);
  WrittenCalls written_calls(std::string_view text, bool closed) const;
  std::string extent_text(const std::string& missing) const;

  std::string_view rest() const { return std::string_view(held_).substr(at_); }
  bool ends_here() const;
  bool may_end_here() const;
  bool is_known(std::string_view name) const;
  bool go(State next);
  bool give_up(Parts& parts);
  bool commit(Parts& parts);
  void skip_space();
  void add_call(std::string_view name, std::string_view arguments, std::string_view id = {});
  void give_content(std::string_view text, Parts& parts);
  void add_argument(std::string_view key, std::string_view value);
  void add_json(std::string_view key, std::string_view json);
  SchemaTypes types_of(std::string_view key) const;
  const Json* parameters(std::string_view tool_name) const;
  const Json* property(std::string_view tool_name, std::string_view key) const;

  CallTags tags_;
  Json tools_;
  std::vector<std::string> known_;  // names of tools
  State state_ = State::content;
  bool last_ = false, cut_ = false;
  std::string held_;     // what is not certain: it begins with the tag of the present call
  size_t at_ = 0;        // of held_: what is before it has been read
  size_t tag_ = 0;       // bytes of the tag
  bool lone_ = false;    // the call began without its tag
  bool fresh_ = false;   // what was no call has just ended
  Parts pending_;        // of calls that have not been given yet
  std::string unread_;   // of a list: what is none of its calls
  std::string space_;    // at the end of the content: it belongs to it if more follows
  bool begun_ = false;   // there was content, or a call
  bool called_ = false;  // the last that came was a call
  std::string name_, id_, arguments_;  // of the present call, where it is no object
  JsonExtent extent_;                  // of the object, or of the arguments
  size_t value_ = 0;                   // where they begin
  size_t searched_ = 0;                // bytes of held_ that have not the tag that is searched
  bool listed_ = false;                // the present call is one of a list
  bool odd_ = false;     // an object has members that are not a call's: some may be arguments
  bool excess_ = false;  // there are more closing brackets than others
};

}  // namespace sluice
