// Numbers that are NaN or infinite, as a file has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/dtype.h"

namespace sluice {

// Counts them among `count` numbers side by side, at any alignment. `type` is f32, f16, bf16,
// f8_e8m0 or f8_e4m3, which has NaN alone; other types have none.
int64_t count_not_finite(DType type, const std::byte* from, int64_t count);

}  // namespace sluice
