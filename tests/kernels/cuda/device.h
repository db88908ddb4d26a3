// Matrices and weights in the device's memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/backend.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"

namespace sluice::test {

// A float32 matrix whose rows are `gap` elements apart; nobody may touch the gaps. The last row has
// none: it ends where the memory ends.
class DeviceMatrix {
 public:
  DeviceMatrix(int64_t rows, int64_t cols, int64_t gap)
      : rows_(rows), cols_(cols), stride_(cols + gap), data_(elements(rows, cols, gap)) {
    for (float& x : data_.span()) x = Matrix::kUntouched;
  }
  DeviceMatrix(const Matrix& from, int64_t gap) : DeviceMatrix(from.rows(), from.cols(), gap) {
    for (int64_t r = 0; r < rows_; ++r) std::memcpy(row(r), &at(from, r), row_bytes());
  }

  Tensor tensor() const {
    return {reinterpret_cast<std::byte*>(data_.data()), DType::f32, rows_, cols_, stride_};
  }
  Matrix copy() const {
    Matrix m(rows_, cols_);
    for (int64_t r = 0; r < rows_; ++r) std::memcpy(&m.at(r, 0), row(r), row_bytes());
    return m;
  }
  bool gaps_untouched() const {
    for (int64_t r = 0; r + 1 < rows_; ++r) {
      for (int64_t c = cols_; c < stride_; ++c) {
        if (row(r)[c] != Matrix::kUntouched) return false;
      }
    }
    return data_.intact();
  }

 private:
  static size_t elements(int64_t rows, int64_t cols, int64_t gap) {
    return static_cast<size_t>(rows * (cols + gap) - (rows > 0 ? gap : 0));
  }
  static const float& at(const Matrix& m, int64_t r) { return const_cast<Matrix&>(m).at(r, 0); }
  float* row(int64_t r) const { return data_.host() + r * stride_; }
  size_t row_bytes() const { return static_cast<size_t>(cols_) * sizeof(float); }

  int64_t rows_, cols_, stride_;
  Buffer<float> data_;
};

// A weight in the layout that a GPU has its format in, in device memory.
struct DeviceWeight {
  DeviceWeight(WeightFormat format, int64_t rows, int64_t cols)
      : data(plane_bytes(format, Plane::codes, rows, cols)),
        scales(plane_bytes(format, Plane::scales, rows, cols) / 4) {
    const bool panels = format.layout == WeightLayout::packed;
    weight = {format, panels ? ceil_div(rows, kPanelRows) * kPanelRows : rows, cols, data.data(),
              scales.size() == 0 ? nullptr : scales.data()};
  }
  Weight host() const {  // what it holds now, until the next launch
    Weight w = weight;
    w.data = data.host();
    if (w.scales != nullptr) w.scales = scales.host();
    return w;
  }
  DeviceWeight(const QuantScheme& scheme, DType stored, int64_t rows, int64_t cols)
      : DeviceWeight(
            with_layout(MatrixLayout::by_codes, scheme.format(stored, WeightLayout::packed)), rows,
            cols) {
    weight.format.whole_blocks = weight.format.scales == ScaleKind::per_block;
  }
  // `values`, encoded by the reference.
  DeviceWeight(const QuantScheme& scheme, DType stored, const Matrix& values)
      : DeviceWeight(scheme, stored, values.rows(), values.cols()) {
    const StoredWeight w = encoded(scheme, stored, weight.format.layout, values);
    std::copy_n(w.data.get(), data.size(), data.host());
    if (scales.size() > 0)
      std::memcpy(scales.host(), w.scales.get(), scales.size() * sizeof(float));
  }
  // Random codes: any integers, or numbers below 2; with scales below 0.1.
  void fill(Random& random) {
    const bool integers = weight.format.dtype == DType::i8;
    for (std::byte& code : data.span()) {
      const auto bits = static_cast<uint32_t>(random.engine()());
      code = static_cast<std::byte>(integers ? bits % 255 - 127 : (bits & 0x87) | 0x38);
    }
    // Scales of blocks are the same for all panels.
    const bool blocks = weight.format.scales == ScaleKind::per_block;
    const size_t own =
        blocks ? static_cast<size_t>(ceil_div(weight.cols, kScaleBlock)) : scales.size();
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = i < own ? 0.05f + 0.05f * static_cast<float>(random.uniform()) : scales[i - own];
  }
  Buffer<std::byte> data;
  Buffer<float> scales;
  Weight weight;
};

}  // namespace sluice::test
