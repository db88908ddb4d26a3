// Strings and numbers of JSON schemas.
#pragma once

#include <optional>
#include <string>

#include "src/grammar/json_text.h"
#include "src/grammar/languages.h"
#include "src/grammar/schema_keywords.h"

namespace sluice::grammar {

class SchemaScalars {
 public:
  SchemaScalars(GrammarBuilder& builder, JsonParts& parts, SchemaDocument& document)
      : builder_(builder), parts_(parts), document_(document) {}

  Expr string(const OrderedJson& schema, const std::string& path);
  Expr number(const OrderedJson& schema, bool integer, const std::string& path);
  // The texts, without quotes, of a schema of strings. What is too complex is told with its place.
  Term string_term(Languages& languages, const OrderedJson& schema, const std::string& path);
  Term pattern_term(Languages& languages, const OrderedJson& pattern, const std::string& path);
  Expr quoted(Languages& languages, Term term, const std::string& path);
  // A string without quotes and escapes, in which `end` does not occur; empty: anything may.
  Expr bare_string(const OrderedJson& schema, std::string_view end, const std::string& path);

 private:
  struct Bound {
    const char* keyword;
    bool exclusive;
    bool low;
  };
  static constexpr Bound kBounds[] = {{"minimum", false, true},
                                      {"exclusiveMinimum", true, true},
                                      {"maximum", false, false},
                                      {"exclusiveMaximum", true, false}};
  template <class Make>
  auto told(const std::string& path, const char* what, Make make) const;
  Expr pattern_expr(const OrderedJson& pattern, const std::string& path);
  Expr held_string(const OrderedJson& schema, const std::string& path);
  Expr held(Languages& languages, Term term, Alphabet alphabet, const std::string& path);
  static bool has_whole_bounds(const OrderedJson& schema, bool integer);
  Expr within_bounds(const OrderedJson& schema, bool integer, const std::string& path);
  static void bound(const OrderedJson& schema, const Bound& b, NumberRange& range);
  std::optional<Expr> few_multiples(const OrderedJson& schema, const std::string& path);
  Term magnitudes(Languages& languages, const OrderedJson& schema, bool negative, bool integer,
                  const std::string& path);
  Expr held_number(const OrderedJson& schema, bool integer, const std::string& path);

  GrammarBuilder& builder_;
  JsonParts& parts_;
  SchemaDocument& document_;
};

}  // namespace sluice::grammar
