// Checks a value by a schema: a grammar has those of listed values that are valid.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "src/grammar/languages.h"
#include "src/grammar/schema_keywords.h"

namespace sluice::grammar {

class SchemaChecker {
 public:
  SchemaChecker(SchemaDocument& document, std::string where)
      : document_(document), where_(std::move(where)) {}

  // A text has the pattern.
  bool matches(const std::string& text, std::string_view pattern, Match match,
               const std::string& path);
  // Validates as JSON schema 2020-12 defines it. Error(refused) for an invalid schema, or one that
  // takes too long.
  bool valid(const OrderedJson& value, const OrderedJson& schema, const std::string& path,
             int nesting);

 private:
  bool valid_parts(const OrderedJson& value, const OrderedJson& schema, const std::string& path,
                   int nesting);
  bool valid_string(const std::string& text, const OrderedJson& schema, const std::string& path);
  bool valid_array(const OrderedJson& value, const OrderedJson& schema, const std::string& path,
                   int nesting);
  bool valid_object(const OrderedJson& value, const OrderedJson& schema, const std::string& path,
                    int nesting);
  bool valid_number(const OrderedJson& value, const OrderedJson& schema) const;
  int64_t how_many(const OrderedJson& value, const OrderedJson& schemas, const std::string& path,
                   int nesting);

  SchemaDocument& document_;
  std::string where_;
};

bool is_of_type(const OrderedJson& value, std::string_view type);

}  // namespace sluice::grammar
