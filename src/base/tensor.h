// A non-owning view of a matrix in memory. The bytes belong to another object
// (src/memory/buffer.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/check.h"
#include "src/base/dtype.h"

namespace sluice {

struct Tensor {
  std::byte* data = nullptr;  // null: a placeholder without storage ("meta")
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, at least cols

  bool is_meta() const { return data == nullptr; }

  template <class T>
  T* row(int64_t r) const {
    return reinterpret_cast<T*>(data) + r * stride;
  }
  // Columns [first, first + count) of every row.
  Tensor columns(int64_t first, int64_t count) const {
    check(first >= 0 && count >= 0 && first + count <= cols, "columns out of range");
    return {data + first * dtype_bytes(dtype), dtype, rows, count, stride};
  }
  Tensor rows_from(int64_t first, int64_t count) const {
    check(first >= 0 && count >= 0 && first + count <= rows, "rows out of range");
    return {data + first * stride * dtype_bytes(dtype), dtype, count, cols, stride};
  }
};

}  // namespace sluice
