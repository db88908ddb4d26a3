// The filters, by what they work on.
#pragma once

#include <span>

#include "src/jinja/functions.h"

namespace sluice::jinja {

std::span<const Filter> text_filters();
std::span<const Filter> list_filters();    // from lists, and of their elements
std::span<const Filter> choice_filters();  // some elements of a list, or each one changed
std::span<const Filter> value_filters();   // numbers, conversions, JSON

// Attributes to take of an element: "a.b" or a number; none: the element itself.
class AttributePath {
 public:
  AttributePath(const Bound& arguments, const Value& path);
  // `standard` takes the place of what is undefined, also on the way; none: nothing does.
  Value of(const Value& element, const Value& standard = Value::none()) const;
  bool empty() const { return keys_.empty(); }

 private:
  Run& run_;
  Values keys_;
};

// Texts without their case, other values as they are: what is sorted and compared.
Value without_case(Meter& meter, const Value& value);

}  // namespace sluice::jinja
