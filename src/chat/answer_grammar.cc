#include "src/chat/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/chat/answer_parser.h"
#include "src/chat/call_form.h"
#include "src/chat/reasoning.h"
#include "src/chat/tool_calls.h"

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
Ordered any_number(Ordered part) { return {{"repeat", std::move(part)}, {"low", 0}}; }
Ordered regex(std::string_view pattern) { return {{"source", "regex"}, {"text", pattern}}; }

// What the arguments of a tool may be.
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
    if (style == CallForm::Style::json) return value(schema_);
    std::vector<Ordered> all;
    const Ordered none = Ordered::object();
    const Ordered& properties = schema_.contains("properties") ? schema_.at("properties") : none;
    check_plain(properties);
    for (const auto& [key, schema] : properties.items()) {
      Ordered one = argument(key, schema, style);
      all.push_back(is_required(key) ? std::move(one) : optional(std::move(one)));
    }
    if (all.empty()) return text({});
    return sequence(std::move(all));
  }

 private:
  Ordered value(Ordered schema) const {
    return {{"schema", std::move(schema)}, {"of", tool_.name}, {"or_object", !tool_.strict}};
  }

  // What says more of the object than its properties has no form between tags.
  void check_plain(const Ordered& properties) const {
    bool plain = properties.is_object();
    for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "enum", "const"})
      plain = plain && !schema_.contains(key);
    if (plain) return;
    fail(ErrorKind::refused,
         "{}: this model writes arguments between tags, and its schema must be an object with "
         "properties",
         where_);
  }

  bool is_required(const std::string& key) const {
    if (!schema_.contains("required") || !schema_.at("required").is_array()) return false;
    const Ordered& required = schema_.at("required");
    return std::ranges::find(required, Ordered(key)) != required.end();
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
    return sequence({text(begin), between_tags(key, schema, end), text(behind)});
  }

  // Strings are as they are, everything else is JSON.
  Ordered between_tags(const std::string& key, const Ordered& schema, std::string_view end) const {
    if (!is_plain_string(schema)) {
      Ordered alone = schema;
      for (const char* defs : {"$defs", "definitions"})
        if (alone.is_object() && schema_.contains(defs)) alone[defs] = schema_.at(defs);
      return value(std::move(alone));
    }
    if (schema.is_object() && schema.contains("enum")) {
      std::vector<Ordered> texts;
      for (const Ordered& one : schema.at("enum"))
        if (one.is_string()) texts.push_back(text(one.get<std::string>()));
      if (!texts.empty()) return one_of(std::move(texts));
    }
    for (const char* keyword : {"pattern", "format", "minLength", "maxLength", "const"}) {
      if (tool_.strict && schema.is_object() && schema.contains(keyword)) {
        fail(ErrorKind::refused,
             "{}: {:?}: {} of a string cannot be held where the model writes strings between tags",
             where_, key, keyword);
      }
    }
    return without(end);
  }

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
    std::vector<Ordered> calls;
    for (const CallableTool& tool : rules_.tools) {
      const std::string where = fmt::format("{}: the tool {:?}", where_, tool.name);
      if (!is_tool_name(tool.name))
        fail(ErrorKind::refused, "{}: a name has letters, digits, _ and -", where);
      const Ordered arguments = Arguments(tool, where).written(form_.style);
      calls.push_back(written(form_.call, &tool, &arguments));
    }
    const Ordered call = one_of(std::move(calls));
    std::vector<Ordered> parts{written(form_.begin), call};
    if (form_.several && !rules_.one_call)
      parts.push_back(any_number(sequence({written(form_.between), call})));
    parts.push_back(written(form_.end));
    return sequence(std::move(parts));
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
  return optional(sequence({space(), token(tags.open), std::move(thought)}));
}

// A text that is no call, and calls behind it.
Ordered text_and_calls(const std::optional<CallForm>& form, const Ordered& calls) {
  if (calls.is_null()) return regex("[\\s\\S]*");
  if (form->bare) return one_of({calls, regex("\\s*([^\\s{][\\s\\S]*)?")});
  return sequence({without(form->opens), optional(calls)});
}

}  // namespace

Ordered answer_composition(std::string_view chat_template, std::string_view prompt,
                           const AnswerRules& rules, const std::string& where) {
  const std::optional<CallForm> form = call_form(chat_template);
  if (!rules.tools.empty() && !form) {
    fail(ErrorKind::refused,
         "{}: the model's chat template writes calls of tools in no form that is known here, so "
         "that they cannot be held to one",
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
    if (const std::optional<ThoughtTags> tags = thought_tags(chat_template, prompt))
      parts.push_back(thoughts(*tags));
    if (!calls.is_null() && (rules.must_call || !any_text)) either.push_back(calls);
    if (!rules.must_call) either.push_back(any_text ? text_and_calls(form, calls) : rules.text);
  }
  parts.push_back(one_of(std::move(either)));
  return sequence(std::move(parts));
}

}  // namespace sluice
