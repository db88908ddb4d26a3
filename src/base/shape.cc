#include "src/base/shape.h"

#include <fmt/ranges.h>

#include "src/base/error.h"

namespace sluice {

Shape::Shape(std::initializer_list<int64_t> dims) {
  for (int64_t d : dims) check(push_back(d), "shape has too many dimensions");
}

bool Shape::push_back(int64_t dim) {
  if (size_ == kMaxDims) return false;
  dims_[static_cast<size_t>(size_++)] = dim;
  return true;
}

std::optional<int64_t> Shape::elements() const {
  int64_t n = 1;
  for (int64_t d : *this) {
    if (__builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  return n;
}

int64_t Shape::cols() const {
  int64_t n = 1;
  for (int i = size_ < 2 ? 0 : 1; i < size_; ++i) n *= (*this)[i];
  return n;
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

}  // namespace sluice
