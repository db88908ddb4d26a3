// Python's operators.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "src/jinja/value.h"

namespace sluice::jinja {

enum class Arithmetic : uint8_t { add, subtract, multiply, divide, floor_divide, remainder, power };

Value compute(Meter& meter, Arithmetic op, const Value& a, const Value& b);
Value negative(Meter& meter, const Value& value);
Value positive(const Value& value);

bool truth(const Value& value);
bool equal(Meter& meter, const Value& a, const Value& b);
bool less(Meter& meter, const Value& a, const Value& b);        // Fault for types without order
bool less_equal(Meter& meter, const Value& a, const Value& b);  // the same
bool contains(Meter& meter, const Value& container, const Value& item);

// The number of elements; Fault where there is none.
size_t length(const Value& value);
// Returns the items of a loop over `value`. Passes through an iterator.
Values iterate(Meter& meter, const Value& value);

struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};
Value slice(Meter& meter, const Value& value, const SliceBounds& bounds);
// The element under an index or a key; nullopt where there is none, or the value has no elements.
std::optional<Value> element(Meter& meter, const Value& value, const Value& key);

// The text with &, <, >, ' and " as HTML needs them; what is markup stays.
Value escape(Meter& meter, const Value& value);

// A stable sort that counts its steps, and in which an order that is none does no harm.
template <class T, class Less>
void merge_sort(Meter& meter, std::vector<T>& items, const Less& before) {
  std::vector<T> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin, right = middle;
      for (size_t at = begin; at < end; ++at) {
        meter.step();
        const bool take_right =
            right < end && (left == middle || before(items[right], items[left]));
        merged[at] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
}

}  // namespace sluice::jinja
