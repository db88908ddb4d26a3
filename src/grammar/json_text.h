// JSON as a model writes it.
//
// Every text that these parts match is JSON (RFC 8259) that any parser takes: numbers do not
// overflow, and strings hold no half of a surrogate pair. Of the many ways to write a value some
// are left out, so that a model cannot go on for ever without saying anything:
//   - White space is possible behind `{` `[` `,` `:` and before `}` `]`: none, one space, or a line
//     break and up to 20 spaces or tabs. None is around the whole.
//   - Numbers have at most 20 digits before and behind the point, and 2 in an exponent.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/json.h"
#include "src/grammar/builder.h"

namespace sluice::grammar {

// A bound of a number; nullopt: there is none.
struct NumberRange {
  std::optional<int64_t> low;
  std::optional<int64_t> high;
  bool without_low = false;  // the bound itself is not in the range
  bool without_high = false;
};

class JsonParts {
 public:
  explicit JsonParts(GrammarBuilder& builder) : builder_(builder) {}

  Expr space();
  Expr string();     // any, with its quotes
  Expr character();  // of a string; escapes included
  Expr number();
  Expr number(const NumberRange& range);
  Expr integer();
  Expr integer(const NumberRange& range);
  Expr value();   // any
  Expr object();  // any
  Expr array();   // any
  // Just this value, in any white space. A string in one spelling: characters as they are, escaped
  // where they must be.
  Expr literal(const OrderedJson& value);
  // `"name"`, as literal().
  Expr quoted(std::string_view text);

  // Between the brackets one or more elements, or also none.
  Expr in_brackets(char open, Expr elements, bool or_none, char close);
  // `element`, from `low` to `high` times in all, with commas; low is at least 1.
  Expr list(Expr element, uint32_t low, uint32_t high);
  Expr comma();

 private:
  Expr shared(std::optional<RuleId>& rule, const char* name, Expr (JsonParts::*make)());
  Expr make_string();
  Expr make_character();
  Expr make_number();
  Expr make_value();
  Expr make_object();
  Expr make_array();
  Expr digits(uint32_t low, uint32_t high);
  Expr between_of_length(std::string_view low, std::string_view high);
  Expr between(std::string_view low, std::string_view high);
  Expr reals(uint64_t low, std::optional<uint64_t> high, bool without_low, bool without_high);

  GrammarBuilder& builder_;
  std::optional<RuleId> string_, character_, number_, value_, object_, array_;
};

}  // namespace sluice::grammar
