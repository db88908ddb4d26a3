// The weight of a row in index_select and index_add.
#pragma once

#include <cstdint>

#include "src/base/tensor.h"

namespace sluice {

// Returns 1 where there are no weights.
inline float row_weight(const Tensor& weights, int64_t row) {
  return weights.data == nullptr ? 1 : *weights.row<float>(row);
}

}  // namespace sluice
