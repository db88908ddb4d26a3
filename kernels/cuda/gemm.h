// Products of many rows, by the vendor's library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/ops.h"

namespace sluice::cuda {

// Row-major bf16 on the device, rows one after the other.
struct Bf16Matrix {
  const uint16_t* data = nullptr;
  int64_t rows = 0, cols = 0;
};

// E4M3 codes in this form, with a scale for each row.
struct E4M3Matrix {
  const uint8_t* data = nullptr;
  int64_t rows = 0, cols = 0;
  const float* scales = nullptr;
  // Instead, for whole blocks of 128 columns: x's scales are of each block those of the rows; w's
  // of each 128 rows those of the blocks, in whole fours. x's rows are whole fours, too.
  bool by_block = false;
};
// The library's product of codes on this GPU: none; sums of products, to be scaled by rows; or
// scaled sums.
enum class E4M3Product : uint8_t { none, sums, scaled };

// Codes of two's complement in this form.
struct I8Matrix {
  int8_t* data = nullptr;
  int64_t rows = 0, cols = 0;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // y = x w^T, summed in float32: x [n, k], w [m, k], y [n, m]. `workspace` is the device's, of
  // kGemmWorkspace bytes. Returns false if the library has no way, or refuses it: then nothing was
  // done. One thread at a time may call.
  [[nodiscard]] virtual bool multiply(const Bf16Matrix& x, const Bf16Matrix& w, Tensor y,
                                      std::span<std::byte> workspace, Stream stream) = 0;
  // The same of E4M3, w's rows and the columns of both in whole 16s, matrices at multiples of 16
  // bytes: what `product_of` says of it. After a refusal that says what is left.
  virtual E4M3Product product_of(const E4M3Matrix& x, const E4M3Matrix& w, Tensor y) = 0;
  [[nodiscard]] virtual bool multiply_e4m3(const E4M3Matrix& x, const E4M3Matrix& w, Tensor y,
                                           std::span<std::byte> workspace, Stream stream) = 0;
  // The same of integers, exactly; y without gaps.
  [[nodiscard]] virtual bool multiply_i8(const I8Matrix& x, const I8Matrix& w, int32_t* y,
                                         std::span<std::byte> workspace, Stream stream) = 0;
};

// NVIDIA's recommendation for Hopper. Earlier GPUs need less and use a part of it.
inline constexpr uint64_t kGemmWorkspace = uint64_t{32} << 20;

}  // namespace sluice::cuda
