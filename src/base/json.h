// JSON from untrusted files: bounded nesting, and field access whose errors name the file and the
// key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

using Json = nlohmann::json;
// JSON whose objects keep the order of their members.
using OrderedJson = nlohmann::ordered_json;

// Parses JSON. `where` names the file in errors. Throws Error(refused) for text that is no JSON, is
// not UTF-8, has trailing text, or nests deeper than `max_depth`. NaN, Infinity and -Infinity are
// numbers (not finite: readers of the field refuse them), and the last value of a repeated key
// counts, as in Python's module.
Json parse_json(std::string_view text, std::string_view where, int max_depth = 64);

// Throws the Error(refused) of parse_json for a text that the library did not read, with what it
// said of it.
[[noreturn]] void refuse_json(std::string_view text, std::string_view where, std::string reason);

// Parses JSON as parse_json() does, in the order of its members. A key that an object has twice is
// refused, or where `repeated` is given told there, and the object has both members. An integer
// beyond 64 bits keeps its digits: it is a binary value of these bytes.
OrderedJson parse_ordered(std::string_view text, std::string_view where,
                          std::optional<std::string>* repeated = nullptr);
[[noreturn]] void refuse_repeated_key(std::string_view key, std::string_view where);
// The text of such a value.
std::string dump_ordered(const OrderedJson& json);
// The same with the nearest double in place of each such integer.
OrderedJson round_integers(OrderedJson json);

// `text` as JSON proper: a string that no file holds stands for each NaN, Infinity and -Infinity.
// nullopt: there is none.
std::optional<std::string> json_of_python(std::string_view text);

// Reads an object's fields. Every error is Error(refused) and says "WHERE: KEY must be ...".
template <class SomeJson>
class BasicFields {
 public:
  BasicFields(const SomeJson& object, std::string where);  // refuses what is not an object

  bool has(const char* key) const;      // present and not null
  bool is_null(const char* key) const;  // present and null
  const SomeJson& raw(const char* key) const;
  // Each of the keys may be absent, but not null.
  void refuse_null(std::initializer_list<const char*> keys) const;
  // The integer under `key`, which must lie in [low, high]; fallback when absent (null counts as
  // absent only there). The fallback must lie there, too: bounds often follow from other keys.
  int64_t integer(const char* key, int64_t low, int64_t high) const;
  int64_t integer_or(const char* key, int64_t low, int64_t high, int64_t fallback) const;
  double number(const char* key) const;
  double number_or(const char* key, double fallback) const;
  bool boolean_or(const char* key, bool fallback) const;
  std::string string(const char* key) const;
  std::string string_or(const char* key, std::string fallback) const;
  const std::string& where() const { return where_; }
  const SomeJson& object() const { return object_; }

 private:
  const SomeJson& object_;
  std::string where_;
};
using JsonFields = BasicFields<Json>;
using OrderedFields = BasicFields<OrderedJson>;

}  // namespace sluice
