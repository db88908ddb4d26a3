// Objects and arrays of JSON schemas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/grammar/json_text.h"
#include "src/grammar/schema_keywords.h"

namespace sluice::grammar {

// Compiles the schemas within others.
class SchemaValues {
 public:
  virtual ~SchemaValues() = default;
  virtual Expr value(const OrderedJson& schema, const std::string& path, int nesting) = 0;
};

class SchemaObjects {
 public:
  SchemaObjects(GrammarBuilder& builder, JsonParts& parts, SchemaDocument& document,
                SchemaValues& values)
      : builder_(builder), parts_(parts), document_(document), values_(values) {}

  Expr object(const OrderedJson& schema, const std::string& path, int nesting);
  Expr array(const OrderedJson& schema, const std::string& path, int nesting);

 private:
  struct Member {
    Expr text;
    bool required = false;
  };
  std::vector<Member> members(const OrderedJson& schema, const std::string& path, int nesting);
  std::optional<Expr> additional(const OrderedJson& schema, const std::string& path, int nesting);
  Expr other_key(const std::vector<std::string>& declared, const std::string& path);
  Expr other_key_from(const std::vector<std::u32string>& declared, size_t begin, size_t end,
                      size_t depth, Expr rest);
  Expr ordered(const std::vector<Member>& members, std::optional<Expr> more);

  GrammarBuilder& builder_;
  JsonParts& parts_;
  SchemaDocument& document_;
  SchemaValues& values_;
};

}  // namespace sluice::grammar
