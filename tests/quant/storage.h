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
      zeros = aligned_bytes(plane_bytes(format, Plane::zeros, logical_rows, cols));
      weight.zeros = reinterpret_cast<uint8_t*>(zeros.get());
    } else {
      weight.scales = reinterpret_cast<float*>(scales.get());
    }
    if (!format.ordered) return;
    order = aligned_bytes(plane_bytes(format, Plane::order, logical_rows, cols));
    weight.order = reinterpret_cast<int32_t*>(order.get());
  }
  AlignedBytes data;
  AlignedBytes scales;
  AlignedBytes zeros;
  AlignedBytes order;
  Weight weight;
};

}  // namespace sluice::test
