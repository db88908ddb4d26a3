#include "src/serve/apis/structured.h"

#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/json_schema.h"
#include "src/serve/apis/ordered_json.h"

namespace sluice {
namespace {

using grammar::GrammarSource;
using grammar::SourceKind;

std::string text_of(const OrderedJson& value, const std::string& where) {
  if (!value.is_string()) fail(ErrorKind::refused, "{}: must be a string", where);
  return value.get<std::string>();
}

void add(std::vector<AskedText>& asked, SourceKind kind, std::string text,
         const std::string& where) {
  AskedText& more = asked.emplace_back();
  more.source.kind = kind;
  more.source.text = std::move(text);
  more.where = where;
}

// Adds what is JSON itself. A schema may also be the text of one.
void add_json(std::vector<AskedText>& asked, SourceKind kind, const OrderedJson& value,
              const std::string& where) {
  if (kind == SourceKind::json_schema && value.is_string())
    return add(asked, kind, value.get<std::string>(), where);
  add(asked, kind, {}, where);
  asked.back().source.json = grammar::take_schema(value, where);
}

void read_response_format(const OrderedFields& body, std::vector<AskedText>& asked) {
  const std::string where = body.where() + ": response_format";
  const OrderedFields format(body.raw("response_format"), where);
  const std::string type = format.string("type");
  if (type == "text") return;
  const bool bare = format.has("schema") && !format.has("json_schema");
  if (bare && (type == "json_object" || type == "json_schema")) {  // as llama.cpp's server has it
    add_json(asked, SourceKind::json_schema, format.raw("schema"), where + ": schema");
  } else if (type == "json_object") {
    add(asked, SourceKind::json_object, {}, where);
  } else if (type == "json_schema") {
    const OrderedFields schema(format.raw("json_schema"), where + ": json_schema");
    add_json(asked, SourceKind::json_schema, schema.raw("schema"), schema.where());
  } else {
    fail(ErrorKind::refused, "{}: unknown type {:?}; must be text, json_object or json_schema",
         where, type);
  }
}

void read_structured_outputs(const OrderedFields& body, std::vector<AskedText>& asked) {
  const std::string where = body.where() + ": structured_outputs";
  const OrderedJson& given = body.raw("structured_outputs");
  const OrderedFields outputs(given, where);
  for (const auto& [key, value] : given.items()) {
    const std::string at = where + ": " + key;
    if (value.is_null()) continue;
    if (key == "json") {
      add_json(asked, SourceKind::json_schema, value, at);
    } else if (key == "json_object") {
      if (value == OrderedJson(true)) add(asked, SourceKind::json_object, {}, at);
    } else if (key == "regex") {
      add(asked, SourceKind::regex, text_of(value, at), at);
    } else if (key == "choice") {
      add_json(asked, SourceKind::choice, value, at);
    } else if (key == "grammar") {
      add(asked, SourceKind::gbnf, text_of(value, at), at);
    } else if (!asks_for_nothing(value)) {
      fail(ErrorKind::refused, "{} is not supported", at);
    }
  }
}

void read_guided(const OrderedFields& body, const char* key, SourceKind kind,
                 std::vector<AskedText>& asked) {
  if (!body.has(key) || asks_for_nothing(body.raw(key))) return;
  const OrderedJson& value = body.raw(key);
  const std::string where = fmt::format("{}: {}", body.where(), key);
  if (kind == SourceKind::json_schema || kind == SourceKind::choice) {
    add_json(asked, kind, value, where);
  } else {
    add(asked, kind, text_of(value, where), where);
  }
}

}  // namespace

std::optional<AskedText> asked_text(const OrderedFields& body) {
  std::vector<AskedText> asked;
  auto has = [&](const char* key) { return body.has(key) && !asks_for_nothing(body.raw(key)); };
  if (has("response_format")) read_response_format(body, asked);
  if (has("structured_outputs")) read_structured_outputs(body, asked);
  read_guided(body, "guided_json", SourceKind::json_schema, asked);
  read_guided(body, "guided_regex", SourceKind::regex, asked);
  read_guided(body, "guided_choice", SourceKind::choice, asked);
  read_guided(body, "guided_grammar", SourceKind::gbnf, asked);
  if (asked.empty()) return std::nullopt;
  if (asked.size() > 1) {
    fail(ErrorKind::usage, "{}: and what another parameter asks for: a text can match one only",
         asked[1].where);
  }
  return std::move(asked[0]);
}

std::shared_ptr<const grammar::TokenGrammar> grammar_of(const OrderedFields& body,
                                                        const Checkpoint& checkpoint) {
  const std::optional<AskedText> asked = asked_text(body);
  return asked ? checkpoint.grammars().find(asked->source, asked->where) : nullptr;
}

}  // namespace sluice
