// Weights of every kind that a linear layer takes, and what its product must be.
#pragma once

#include <cmath>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/backend.h"

namespace sluice::test {

struct Kind {
  DType stored;  // before quantization
  ScaleGroup group;
  DType codes = DType::f8_e4m3;
  bool quantized_input = false;
  const char* name = nullptr;  // of a scheme in groups, in the place of all but `stored`
  QuantScheme scheme() const {
    if (name != nullptr) return *find_quant_scheme(name);
    return {.name = "", .group = group, .codes = codes, .quantized_input = quantized_input};
  }
};
inline const Kind kKinds[] = {{DType::bf16, ScaleGroup::none},
                              {DType::f16, ScaleGroup::none},
                              {DType::f32, ScaleGroup::none},
                              {DType::bf16, ScaleGroup::row},
                              {DType::bf16, ScaleGroup::tensor},
                              {DType::bf16, ScaleGroup::block},
                              {DType::bf16, ScaleGroup::row, DType::f8_e4m3, true},
                              {DType::bf16, ScaleGroup::block, DType::f8_e4m3, true},
                              {DType::bf16, ScaleGroup::row, DType::i8}};

inline StoredWeight random_weight(const Kind& kind, WeightLayout layout, int64_t rows, int64_t cols,
                                  Random& random) {
  return encoded(kind.scheme(), kind.stored, layout, Matrix::random(rows, cols, random, 0.1f));
}

// Returns a layer's input as it is rounded before the product.
inline Matrix rounded(const Matrix& x, const WeightFormat& format, Compute compute) {
  const DType type = format.dtype;
  const float largest = type == DType::i8 ? 127 : kE4M3Max;
  Matrix out(x.rows(), x.cols());
  const int64_t step = format.scales == ScaleKind::per_block ? kScaleBlock : x.cols();
  for (int64_t i = 0; i < x.rows() * ceil_div(x.cols(), step); ++i) {
    const int64_t r = i % x.rows(), begin = i / x.rows() * step;
    const int64_t end = std::min(begin + step, x.cols());
    float scale = 0;
    for (int64_t c = begin; c < end; ++c) scale = std::max(scale, std::abs(x.at(r, c)) / largest);
    for (int64_t c = begin; c < end; ++c) {
      float value = x.at(r, c);
      if (type == DType::i8) {
        value = std::nearbyint(value / scale) * scale;
      } else if (format.quantized_input) {
        value = e4m3_to_float(float_to_e4m3(value / scale)) * scale;
      } else if (compute == Compute::bf16 && (type == DType::bf16 || type == DType::f8_e4m3)) {
        value = bf16_to_float(float_to_bf16(value));
      }
      out.at(r, c) = value;
    }
  }
  return out;
}

// Compares with float64, within the rounding of a float32 sum, and `rounding` of its terms, which
// are below 1 for the most part.
inline void expect_product(const Matrix& x, const Weight& w, const float* bias, const Matrix& y,
                           float rounding = 0) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  const double root = std::sqrt(static_cast<double>(w.cols));
  const double step = std::ldexp(1, -23) * (4 + root), least = rounding * root + 1e-30;
  for (int64_t o = 0; o < w.rows; ++o) {
    decode_row(w, o, row.data());
    for (int64_t r = 0; r < x.rows(); ++r) {
      double sum = bias != nullptr ? bias[o] : 0, size = std::abs(sum);
      for (int64_t c = 0; c < w.cols; ++c) {
        double product = static_cast<double>(x.at(r, c)) * row[static_cast<size_t>(c)];
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(y.at(r, o), sum, step * size + least) << "row " << r << ", output " << o;
    }
  }
  EXPECT_TRUE(y.gaps_untouched());
}

}  // namespace sluice::test
