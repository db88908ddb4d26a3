// What the keywords of JSON schemas mean here, and schemas put together from parts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "src/grammar/json_text.h"

namespace sluice::grammar {

enum class KeywordUse : uint8_t {
  object,  // of this type's values only
  array,
  string,
  number,
  any,         // of all types: type, enum, anyOf ...
  annotation,  // says nothing about what is valid
  no,          // not supported
};
KeywordUse use_of(std::string_view keyword);

// Where a schema is in its document, for errors: "/properties/a".
std::string below(const std::string& path, std::string_view key);

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

  // Refuses what is no object, and unknown or unsupported keywords.
  void check_keywords(const OrderedJson& schema, const std::string& path) const;
  // The schema that `$ref` names. Error(refused) where there is none in the document.
  const OrderedJson& target(const OrderedJson& schema, const std::string& path) const;
  // Of one object, without $ref and allOf: what all of them say together.
  OrderedJson flat(const OrderedJson& schema, const std::string& path, int nesting);
  // Both of two flat ones.
  OrderedJson both(OrderedJson a, const OrderedJson& b, const std::string& path);

  // A non-negative integer; `fallback` where there is none.
  uint32_t count(const OrderedJson& schema, const char* keyword, uint32_t fallback,
                 const std::string& path) const;
  // Counts a schema as read: Error(refused) for more than a document may take.
  void count_step(const std::string& path, int nesting);

 private:
  [[noreturn]] void refuse_text(const std::string& path, const std::string& why) const;
  void join(OrderedJson& into, const std::string& keyword, const OrderedJson& value,
            const std::string& path) const;
  void check_closed(const OrderedJson& a, const OrderedJson& b, const std::string& path) const;

  const OrderedJson& root_;
  std::string where_;
  int64_t& steps_;
};

}  // namespace sluice::grammar
