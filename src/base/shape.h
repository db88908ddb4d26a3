// Shapes as files and parameters have them: at most 8 dimensions, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

namespace sluice {

class Shape {
 public:
  static constexpr int kMaxDims = 8;

  Shape() = default;  // a scalar: no dimensions, one element
  Shape(std::initializer_list<int64_t> dims);

  // False (and unchanged) when there is no room for one more dimension.
  bool push_back(int64_t dim);

  int size() const { return size_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + size_; }

  // Product of all dimensions; nullopt when it overflows int64.
  std::optional<int64_t> elements() const;
  // A matrix view: rows = first dimension, cols = product of the others; a vector is one row.
  int64_t rows() const { return size_ < 2 ? 1 : dims_[0]; }
  int64_t cols() const;

  std::string str() const;  // "[4096, 11008]"
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int size_ = 0;
};

}  // namespace sluice
