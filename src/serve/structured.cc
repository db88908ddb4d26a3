#include "src/serve/structured.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/json_schema.h"
#include "src/serve/ordered_json.h"

namespace sluice {
namespace {

using grammar::GrammarSource;
using grammar::SourceKind;

constexpr std::string_view kWithSchemas[] = {"response_format", "structured_outputs",
                                             "guided_json"};

bool asks_for_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json("") ||
         (value.is_structured() && value.empty());
}

std::string text_of(const Json& value, const std::string& where) {
  if (!value.is_string()) fail(ErrorKind::refused, "{}: must be a string", where);
  return value.get<std::string>();
}

// A schema, or its text.
std::string schema_text(const Json& schema) {
  return schema.is_string() ? schema.get<std::string>() : schema.dump();
}

void add(std::vector<AskedText>& asked, SourceKind kind, std::string text,
         const std::string& where) {
  AskedText& more = asked.emplace_back();
  more.source.kind = kind;
  more.source.text = std::move(text);
  more.where = where;
}

void read_response_format(const JsonFields& body, std::vector<AskedText>& asked) {
  const std::string where = body.where() + ": response_format";
  const JsonFields format(body.raw("response_format"), where);
  const std::string type = format.string("type");
  if (type == "text") return;
  const bool bare = format.has("schema") && !format.has("json_schema");
  if (bare && (type == "json_object" || type == "json_schema")) {  // as llama.cpp's server has it
    add(asked, SourceKind::json_schema, schema_text(format.raw("schema")), where + ": schema");
  } else if (type == "json_object") {
    add(asked, SourceKind::json_object, {}, where);
  } else if (type == "json_schema") {
    const JsonFields schema(format.raw("json_schema"), where + ": json_schema");
    add(asked, SourceKind::json_schema, schema_text(schema.raw("schema")), schema.where());
  } else {
    fail(ErrorKind::refused, "{}: unknown type {:?}; must be text, json_object or json_schema",
         where, type);
  }
}

void read_structured_outputs(const JsonFields& body, std::vector<AskedText>& asked) {
  const std::string where = body.where() + ": structured_outputs";
  const Json& given = body.raw("structured_outputs");
  const JsonFields outputs(given, where);
  for (const auto& [key, value] : given.items()) {
    const std::string at = where + ": " + key;
    if (value.is_null()) continue;
    if (key == "json") {
      add(asked, SourceKind::json_schema, schema_text(value), at);
    } else if (key == "json_object") {
      if (value == Json(true)) add(asked, SourceKind::json_object, {}, at);
    } else if (key == "regex") {
      add(asked, SourceKind::regex, text_of(value, at), at);
    } else if (key == "choice") {
      add(asked, SourceKind::choice, value.dump(), at);
    } else if (key == "grammar") {
      add(asked, SourceKind::gbnf, text_of(value, at), at);
    } else if (!asks_for_nothing(value)) {
      fail(ErrorKind::refused, "{} is not supported", at);
    }
  }
}

void read_guided(const JsonFields& body, const char* key, SourceKind kind,
                 std::vector<AskedText>& asked) {
  if (!body.has(key) || asks_for_nothing(body.raw(key))) return;
  const Json& value = body.raw(key);
  const std::string where = fmt::format("{}: {}", body.where(), key);
  if (kind == SourceKind::json_schema) {
    add(asked, kind, schema_text(value), where);
  } else {
    const bool list = kind == SourceKind::choice;
    add(asked, kind, list ? value.dump() : text_of(value, where), where);
  }
}

// The parameters with schemas, as they are in the text.
Ordered ordered_parameters(std::string_view body) {
  Ordered parameters = Ordered::object();
  for (std::string_view key : kWithSchemas) {
    const std::string_view text = member_text(body, key);
    if (!text.empty())
      parameters[std::string(key)] = Ordered::parse(text.begin(), text.end(), nullptr, false);
  }
  return parameters;
}

void put_text(Json& into, const Json::json_pointer& path, const Ordered& ordered) {
  const Ordered::json_pointer same(path.to_string());
  if (into.contains(path) && into.at(path).is_object() && ordered.contains(same))
    into[path] = ordered.at(same).dump();
}

}  // namespace

std::optional<AskedText> asked_text(const JsonFields& body) {
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

std::shared_ptr<const grammar::TokenGrammar> grammar_of(const JsonFields& body,
                                                        const Session& session) {
  const std::optional<AskedText> asked = asked_text(body);
  return asked ? session.grammars().find(asked->source, asked->where) : nullptr;
}

void keep_schema_order(Json& body, std::string_view text, bool is_line) {
  if (!body.is_object()) return;
  bool needed = false;
  for (std::string_view key : kWithSchemas) {
    auto found = body.find(key);
    if (found == body.end() || !found->is_structured()) continue;
    if (grammar::has_large_object(*found)) return;  // is refused, in whatever order
    needed = true;
  }
  if (!needed) return;
  const Ordered ordered = ordered_parameters(is_line ? member_text(text, "body") : text);
  for (const char* path : {"/response_format/json_schema/schema", "/response_format/schema",
                           "/structured_outputs/json", "/guided_json"})
    put_text(body, Json::json_pointer(path), ordered);
}

}  // namespace sluice
