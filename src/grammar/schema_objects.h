// Objects and arrays of JSON schemas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/grammar/json_text.h"
#include "src/grammar/schema_check.h"
#include "src/grammar/schema_keywords.h"
#include "src/grammar/schema_scalars.h"

namespace sluice::grammar {

// Compiles the schemas within others.
class SchemaValues {
 public:
  virtual ~SchemaValues() = default;
  virtual Expr value(const OrderedJson& schema, const std::string& path, int nesting) = 0;
};

// Bounds of a number of members or elements.
struct Counts {
  uint32_t low = 0;
  uint32_t high = 0;
};

class SchemaObjects {
 public:
  SchemaObjects(GrammarBuilder& builder, JsonParts& parts, SchemaDocument& document,
                SchemaScalars& scalars, SchemaChecker& checker, SchemaValues& values)
      : builder_(builder),
        parts_(parts),
        document_(document),
        scalars_(scalars),
        checker_(checker),
        values_(values) {}

  Expr object(const OrderedJson& schema, const std::string& path, int nesting);
  Expr array(const OrderedJson& schema, const std::string& path, int nesting);

 private:
  struct Member {
    Expr text;
    bool required = false;
  };
  // Numbers in all.
  using Ways = std::vector<std::vector<std::optional<Expr>>>;

  OrderedJson with_names(const OrderedJson& schema, const std::string& path, int nesting);
  OrderedJson value_of(const OrderedJson& schema, const std::string& name, const std::string& path);
  std::vector<Member> members(const OrderedJson& schema, const std::string& path, int nesting);
  std::optional<Expr> additional(const OrderedJson& schema, const std::string& path, int nesting);
  std::optional<Expr> patterned(const OrderedJson& schema, const std::vector<std::string>& declared,
                                const std::string& path, int nesting);
  std::optional<Expr> member(Languages& languages, Term key, const OrderedJson& value,
                             const std::string& path, int nesting);
  Expr other_key(const std::vector<std::string>& declared, const std::string& path);
  Expr other_key_from(const std::vector<std::u32string>& declared, size_t begin, size_t end,
                      size_t depth, Expr rest);
  Expr ordered(const std::vector<Member>& members, std::optional<Expr> more);
  std::optional<Expr> counted(const std::vector<Member>& members, std::optional<Expr> more,
                              Counts counts, const std::string& path);

  std::optional<OrderedJson> few_values(const OrderedJson& schema, const std::string& path,
                                        int nesting);
  Expr unique(const OrderedJson& values, Counts counts, const std::string& path);
  Expr permuted(const std::vector<Expr>& values, Counts counts);
  Expr containing(const OrderedJson& schema, Counts counts, const std::string& path, int nesting);

  GrammarBuilder& builder_;
  JsonParts& parts_;
  SchemaDocument& document_;
  SchemaScalars& scalars_;
  SchemaChecker& checker_;
  SchemaValues& values_;
};

}  // namespace sluice::grammar
