// Turns run-time values into template parameters, on the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include "src/base/check.h"
#include "src/base/dtype.h"
#include "src/base/tensor.h"

namespace sluice::cuda {

template <auto kValue>
using Constant = std::integral_constant<decltype(kValue), kValue>;

// body(Constant<dtype>{}), for one of the dtypes listed.
template <DType... kDTypes, class Body>
void with_dtype(DType dtype, Body&& body) {
  const bool known = ((dtype == kDTypes && (body(Constant<kDTypes>{}), true)) || ...);
  check(known, "an element type that the kernel has");
}

// body(Constant<4>{}) where all rows may be read and written as float4, else body(Constant<1>{}).
template <class Body, class... Tensors>
void with_width(Body&& body, const Tensors&... tensors) {
  auto by_four = [](const Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0 && x.cols % 4 == 0;
  };
  if ((by_four(tensors) && ...)) {
    body(Constant<4>{});
  } else {
    body(Constant<1>{});
  }
}

// Threads of a block, a multiple of a warp, for so many independent pieces of work.
constexpr uint32_t block_threads(int64_t pieces, uint32_t most) {
  const int64_t warps = (pieces + 31) / 32;
  return warps < 1 ? 32 : warps * 32 > most ? most : static_cast<uint32_t>(warps * 32);
}

}  // namespace sluice::cuda
