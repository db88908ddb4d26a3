#include "src/chat/answer_grammar.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "src/base/error.h"
#include "src/chat/call_form.h"
#include "src/chat/channels.h"
#include "src/chat/reasoning.h"
#include "src/chat/schema_types.h"
#include "src/chat/tool_calls.h"
#include "src/grammar/schema_keywords.h"

namespace sluice {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr int kSpaces = 4;  // of line breaks and the like around thoughts

Ordered text(std::string_view text) { return {{"text", text}}; }
Ordered token(std::string_view text) { return {{"token", text}}; }
Ordered without(std::string_view text) { return {{"without", text}}; }
Ordered space() { return {{"space", kSpaces}}; }
Ordered one_of(std::vector<Ordered> parts) { return {{"choice", std::move(parts)}}; }
Ordered sequence(std::vector<Ordered> parts) { return {{"sequence", std::move(parts)}}; }
Ordered optional(Ordered part) { return {{"repeat", std::move(part)}, {"low", 0}, {"high", 1}}; }
Ordered regex(std::string_view pattern) { return {{"source", "regex"}, {"text", pattern}}; }

// Grammar of the arguments of a tool.
class Arguments {
 public:
  Arguments(const CallableTool& tool, std::string where)
      : tool_(tool), schema_(tool.schema), where_(std::move(where)) {
    if (schema_.is_null()) schema_ = Ordered::object();
    if (!schema_.is_object())
      fail(ErrorKind::refused, "{}: its parameters must be a JSON schema", where_);
    if (schema_.empty()) schema_["additionalProperties"] = false;
    if (!schema_.contains("type")) schema_["type"] = "object";
  }

  Ordered written(CallForm::Style style) const {
    if (style == CallForm::Style::json) return value(schema_, any_object());
    std::vector<Ordered> all;
    const Ordered none = Ordered::object();
    const Ordered& properties = schema_.contains("properties") ? schema_.at("properties") : none;
    check_plain(properties);
    std::set<std::string_view> required = required_names();
    for (const auto& [key, schema] : properties.items()) {
      const bool needed = required.erase(key) > 0;
      if (!needed && schema == Ordered(false)) continue;  // may not be there
      Ordered one = argument(key, schema, style);
      all.push_back(needed ? std::move(one) : optional(std::move(one)));
    }
    if (tool_.strict && !required.empty()) {
      fail(ErrorKind::refused, "{}: required: {:?} is not one of the properties", where_,
           *required.begin());
    }
    if (all.empty()) return text({});
    return {{"root", schema_}, {"part", sequence(std::move(all))}};
  }

 private:
  static Ordered any_object() { return {{"source", "json_object"}, {"text", ""}}; }

  // `loose`: what it may be instead, where the schema cannot be held and need not.
  Ordered value(Ordered schema, Ordered loose) const {
    Ordered part{{"schema", std::move(schema)}, {"of", tool_.name}};
    if (!tool_.strict) part["or"] = std::move(loose);
    return part;
  }

  // Keywords that say more of the object than its properties have no form between tags.
  void check_plain(const Ordered& properties) const {
    const bool object = properties.is_object() && schema_.at("type") == "object";
    for (const auto& [key, said] : schema_.items()) {
      const bool plain = std::ranges::find(kOfObjects, key) != kOfObjects.end() ||
                         grammar::use_of(key) == grammar::KeywordUse::annotation;
      const bool shape = std::ranges::find(kShapes, key) != kShapes.end();
      if (!plain && (tool_.strict || shape)) refuse_between_tags(key);
    }
    if (!object) refuse_between_tags("type");
  }
  [[noreturn]] void refuse_between_tags(const std::string& key) const {
    fail(ErrorKind::refused,
         "{}: this model writes arguments between tags, and its schema must be an object with "
         "properties, without {:?}",
         where_, key);
  }

  std::set<std::string_view> required_names() const {
    std::set<std::string_view> names;
    if (!schema_.contains("required") || !schema_.at("required").is_array()) return names;
    for (const Ordered& name : schema_.at("required"))
      if (name.is_string()) names.insert(name.get_ref<const std::string&>());
    return names;
  }

  Ordered argument(const std::string& key, const Ordered& schema, CallForm::Style style) const {
    if (key.find_first_of("<>\r\n") != key.npos) {
      fail(ErrorKind::refused, "{}: the model has no way to write the name of {:?}", where_, key);
    }
    const bool lines = style == CallForm::Style::parameters;
    const std::string_view end = lines ? "</parameter>" : "</arg_value>";
    const std::string begin =
        lines ? "<parameter=" + key + ">\n" : "<arg_key>" + key + "</arg_key>\n<arg_value>";
    std::string behind = lines ? "\n" : "";
    behind.append(end) += '\n';
    return sequence({text(begin), between_tags(schema, end), text(behind)});
  }

  // Strings are as they are, everything else is JSON.
  Ordered between_tags(const Ordered& schema, std::string_view end) const {
    if (schema == Ordered(false) || !SchemaTypes::of(schema, schema_).is_text())
      return value(schema, {{"schema", true}});
    if (is_free(schema)) return without(end);
    Ordered part = value(schema, without(end));
    part["end"] = end;
    return part;
  }

  // Nothing is said of a string.
  static bool is_free(const Ordered& schema) {
    return !schema.is_object() || std::ranges::all_of(schema.items(), [](const auto& member) {
      return (member.key() == "type" && member.value() == "string") ||
             grammar::use_of(member.key()) == grammar::KeywordUse::annotation;
    });
  }

  static constexpr std::array<std::string_view, 4> kOfObjects{"type", "properties", "required",
                                                              "additionalProperties"};
  // Keywords that may declare properties in another place.
  static constexpr std::array<std::string_view, 6> kShapes{"$ref",  "allOf", "anyOf",
                                                           "oneOf", "enum",  "const"};

  const CallableTool& tool_;
  Ordered schema_;
  std::string where_;
};

class Calls {
 public:
  Calls(const CallForm& form, const AnswerRules& rules, const std::string& where)
      : form_(form), rules_(rules), where_(where) {}

  // One or more.
  Ordered all() const {
    // The text before the name is the same for all tools.
    const auto name = std::ranges::find(form_.call, CallPiece::Kind::name, &CallPiece::kind);
    const auto before = static_cast<size_t>(name - form_.call.begin());
    std::vector<Ordered> calls;
    for (const CallableTool& tool : rules_.tools) {
      const std::string where = fmt::format("{}: the tool {:?}", where_, tool.name);
      if (!is_tool_name(tool.name)) {
        fail(ErrorKind::refused, "{}: a name has letters, digits and _-./:, at most 256 in all",
             where);
      }
      const Ordered arguments = Arguments(tool, where).written(form_.style);
      calls.push_back(written(form_.call.subspan(before), &tool, &arguments));
    }
    Ordered call = sequence({written(form_.call.first(before)), one_of(std::move(calls))});
    if (form_.several && !rules_.one_call)
      call = {{"repeat", std::move(call)}, {"low", 1}, {"between", written(form_.between)}};
    return sequence({written(form_.begin), std::move(call), written(form_.end)});
  }

 private:
  static Ordered written(std::span<const CallPiece> pieces, const CallableTool* tool = nullptr,
                         const Ordered* arguments = nullptr) {
    std::vector<Ordered> parts;
    for (const CallPiece& piece : pieces) {
      switch (piece.kind) {
        case CallPiece::Kind::text:
          parts.push_back(text(piece.text));
          break;
        case CallPiece::Kind::token:
          parts.push_back(token(piece.text));
          break;
        case CallPiece::Kind::name:
          parts.push_back(text(tool->name));
          break;
        case CallPiece::Kind::blank:
          parts.push_back({{"space", 1}});
          break;
        case CallPiece::Kind::id:
          parts.push_back(regex("[a-zA-Z0-9]{9}"));
          break;
        case CallPiece::Kind::number:
          parts.push_back(regex("[0-9]{1,3}"));
          break;
        case CallPiece::Kind::arguments:
          parts.push_back(*arguments);
          break;
      }
    }
    if (parts.empty()) return text({});
    return sequence(std::move(parts));
  }

  const CallForm& form_;
  const AnswerRules& rules_;
  const std::string& where_;
};

// A message of gpt-oss in its channel.
Ordered in_channel(std::string_view channel, Ordered body) {
  return sequence({token("<|channel|>"), text(channel), token("<|message|>"), std::move(body)});
}

Ordered thoughts_in_channel() {
  return optional(sequence({in_channel("analysis", without("<|end|>")), token("<|end|>"),
                            token("<|start|>"), text("assistant")}));
}

Ordered thoughts(const ThoughtTags& tags) {
  Ordered thought = sequence({without(tags.close), token(tags.close), space()});
  if (tags.begun) return thought;
  // Behind the token a tag may have a word.
  const size_t end = std::min(tags.open.rfind('>'), tags.open.size() - 1) + 1;
  return optional(sequence(
      {space(), token(tags.open.substr(0, end)), text(tags.open.substr(end)), std::move(thought)}));
}

// A text that is no call, and calls behind it.
Ordered text_and_calls(const CallForm* form, const Ordered& calls) {
  if (calls.is_null()) return regex("[\\s\\S]*");
  if (form->tags.bare) return one_of({calls, regex("\\s*([^\\s{][\\s\\S]*)?")});
  return sequence({without(form->tags.first()), optional(calls)});
}

}  // namespace

Ordered answer_composition(std::string_view chat_template, std::string_view prompt,
                           const AnswerRules& rules, const std::string& where) {
  const CallForm* form = rules.form != nullptr ? rules.form : exact_call_form(chat_template);
  if (!rules.tools.empty() && form == nullptr) {
    fail(ErrorKind::refused,
         "{}: this model's template has no known tool-call format; tool_choice required is not "
         "possible",
         where);
  }
  Ordered calls;
  if (!rules.tools.empty()) calls = Calls(*form, rules, where).all();
  const bool any_text = rules.text.is_null();
  std::vector<Ordered> parts, either;
  if (has_channels(chat_template)) {
    parts.push_back(thoughts_in_channel());
    if (!calls.is_null()) either.push_back(calls);
    if (!rules.must_call)
      either.push_back(in_channel("final", any_text ? without("<|end|>") : rules.text));
  } else {
    if (const std::optional<ThoughtTags> tags =
            thought_tags(chat_template, prompt, rules.begins_in_thoughts))
      parts.push_back(thoughts(*tags));
    if (!calls.is_null() && (rules.must_call || !any_text)) either.push_back(calls);
    if (!rules.must_call) either.push_back(any_text ? text_and_calls(form, calls) : rules.text);
  }
  parts.push_back(one_of(std::move(either)));
  return sequence(std::move(parts));
}

}  // namespace sluice
