// A weight with storage of its own, for tests: 64-byte aligned, filled with garbage so that what
// encoding does not write shows.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "quant/encode.h"
#include "quant/format.h"
#include "src/base/error.h"

namespace sluice::test {

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeDeleter>;

inline AlignedBytes aligned_bytes(uint64_t bytes) {
  void* p = std::aligned_alloc(64, round_up(bytes + 1, 64));
  check(p != nullptr, "aligned_alloc");
  std::memset(p, 0xa5, round_up(bytes + 1, 64));
  return AlignedBytes(static_cast<std::byte*>(p));
}

struct StoredWeight {
  StoredWeight(WeightFormat format, int64_t logical_rows, int64_t cols)
      : data(aligned_bytes(plane_bytes(format, Plane::codes, logical_rows, cols))),
        scales(aligned_bytes(plane_bytes(format, Plane::scales, logical_rows, cols))) {
    weight.format = format;
    weight.rows = format.layout == WeightLayout::packed
                      ? ceil_div(logical_rows, kPanelRows) * kPanelRows
                      : logical_rows;
    weight.cols = cols;
    weight.data = data.get();
    if (format.scales == ScaleKind::grouped) {
      weight.group_scales = scales.get();
      add(Plane::zeros, logical_rows, zeros, weight.zeros);
      add(Plane::outers, logical_rows, outers, weight.outers);
      add(Plane::tables, logical_rows, tables, weight.tables);
    } else {
      weight.scales = reinterpret_cast<float*>(scales.get());
    }
    if (!format.ordered) return;
    order = aligned_bytes(plane_bytes(format, Plane::order, logical_rows, cols));
    weight.order = reinterpret_cast<int32_t*>(order.get());
  }
  template <class T>
  void add(Plane plane, int64_t logical_rows, AlignedBytes& memory, T*& at) {
    const uint64_t bytes = plane_bytes(weight.format, plane, logical_rows, weight.cols);
    if (bytes == 0) return;
    memory = aligned_bytes(bytes);
    at = reinterpret_cast<T*>(memory.get());
  }
  AlignedBytes data;
  AlignedBytes scales;
  AlignedBytes zeros;
  AlignedBytes order, outers, tables;
  Weight weight;
};

}  // namespace sluice::test
