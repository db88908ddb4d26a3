// The meaning of the keywords of JSON schemas, and schemas put together from parts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/grammar/json_text.h"

namespace sluice::grammar {

enum class KeywordUse : uint8_t {
  object,  // of this type's values only
  array,
  string,
  number,
  any,         // of all types: type, enum, anyOf ...
  annotation,  // says nothing about what is valid, as every keyword that is not known
};
// Keywords that schemas get here, which no text can have: values and patterns that must not be, and
// further patterns and formats. Each has a list.
inline constexpr const char* kExcluded = "\1excluded";
inline constexpr const char* kUnlike = "\1unlike";
inline constexpr const char* kPatterns = "\1patterns";
inline constexpr const char* kFormats = "\1formats";
KeywordUse use_of(std::string_view keyword);

// Returns a schema's place in its document, for errors: "/properties/a".
std::string below(const std::string& path, std::string_view key);

// Refuses a schema that is valid for no value. Of several alternatives, those that are valid for
// some are left.
class NoValue : public Error {
 public:
  using Error::Error;
};

// Compares as JSON schemas do: members in any order, 1 and 1.0 alike.
bool same_value(const OrderedJson& a, const OrderedJson& b);

// Reads schemas of one document.
class SchemaDocument {
 public:
  // `steps` goes on from what other documents have taken.
  SchemaDocument(const OrderedJson& root, std::string where, int64_t& steps)
      : root_(root), where_(std::move(where)), steps_(steps) {}

  // Error(refused): WHERE: the schema at PATH: KEYWORD ...
  template <class... Args>
  [[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> format,
                           Args&&... args) const {
    refuse_text(path, fmt::format(format, std::forward<Args>(args)...));
  }

  template <class... Args>
  [[noreturn]] void no_value(const std::string& path, fmt::format_string<Args...> format,
                             Args&&... args) const {
    throw NoValue(ErrorKind::refused,
                  sentence(path, fmt::format(format, std::forward<Args>(args)...)));
  }

  // Refuses what is no object.
  void check_object(const OrderedJson& schema, const std::string& path) const;
  // The same in fewer keywords: without nullable, not, if, dependentRequired and the like, older
  // drafts' forms, and what says nothing.
  OrderedJson plain(OrderedJson schema, const std::string& path, int nesting);
  // The schema that `$ref` names. Error(refused) where there is none in the document.
  const OrderedJson& target(const OrderedJson& schema, const std::string& path) const;
  // Merges $ref and allOf into one object that says what all of them say together.
  OrderedJson flat(const OrderedJson& given, const std::string& path, int nesting);
  // Both of two flat ones.
  OrderedJson both(OrderedJson a, OrderedJson b, const std::string& path);

  // A non-negative integer; `fallback` where there is none.
  uint32_t count(const OrderedJson& schema, const char* keyword, uint32_t fallback,
                 const std::string& path) const;
  // Counts a schema as read: Error(refused) for more than a document may take.
  void count_step(const std::string& path, int nesting);
  // Counts copies of values and derivatives of languages: many are as a schema.
  void count_small_steps(const std::string& path, uint64_t steps);

 private:
  std::string sentence(const std::string& path, const std::string& why) const;
  [[noreturn]] void refuse_text(const std::string& path, const std::string& why) const;
  void join(OrderedJson& into, const std::string& keyword, const OrderedJson& value,
            const std::string& path) const;
  void join_alternatives(OrderedJson& mine, const OrderedJson& value,
                         const std::string& path) const;
  void close(const OrderedJson& a, OrderedJson& b, const std::string& path) const;
  const OrderedJson* anchored(const OrderedJson& in, const std::string& name, int nesting) const;
  void add_conditions(OrderedJson& schema, OrderedJson& more, const std::string& path) const;
  void add_dependent(OrderedJson& schema, OrderedJson& more, const std::string& path) const;
  OrderedJson negation(const OrderedJson& given, const std::string& path, int nesting);
  bool negate_limit(const std::string& key, const OrderedJson& value, OrderedJson& alternatives,
                    const std::string& path) const;
  void negate(const std::string& key, const OrderedJson& value, OrderedJson& alternatives,
              const std::string& path, int nesting);

  const OrderedJson& root_;
  std::string where_;
  int64_t& steps_;
};

}  // namespace sluice::grammar
