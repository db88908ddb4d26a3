#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::scale(Tensor x, float factor, const float* by) const {
  check_same_shape(x, x);
  const float product = by != nullptr ? factor * *by : factor;
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) x.row<float>(r)[c] *= product;
  }
}

void ReferenceKernels::scale_heads(Tensor x, Tensor factors) const {
  check_scale_heads(x, factors);
  const int64_t dim = x.cols / factors.cols;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* by = factors.row<float>(factors.rows == 1 ? 0 : r);
    for (int64_t c = 0; c < x.cols; ++c) x.row<float>(r)[c] *= by[c / dim];
  }
}

void ReferenceKernels::mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y) const {
  check_mix(x, weights, dim, y);
  const int64_t parts = x.cols / dim, others = y.cols / dim;
  for (int64_t r = 0; r < x.rows; ++r) {
    const std::vector<float> from(x.row<float>(r), x.row<float>(r) + x.cols);
    for (int64_t k = 0; k < others; ++k) {
      for (int64_t c = 0; c < dim; ++c) {
        float& to = y.row<float>(r)[k * dim + c];
        double sum = to;
        for (int64_t j = 0; j < parts; ++j)
          sum += (double{weights.row<float>(r)[k * parts + j]} + added) *
                 from[static_cast<size_t>(j * dim + c)];
        to = static_cast<float>(sum);
      }
    }
  }
}

void ReferenceKernels::match_squares(Tensor x, Tensor to, float least) const {
  check_match_squares(x, to, least);
  const auto mean_square = [](const float* of, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += double{of[i]} * of[i];
    return sum / static_cast<double>(count);
  };
  for (int64_t r = 0; r < x.rows; ++r) {
    const double target = mean_square(to.row<float>(r), to.cols);
    for (float* part = x.row<float>(r); part < x.row<float>(r) + x.cols; part += to.cols) {
      const double factor = std::sqrt(target / std::max<double>(mean_square(part, to.cols), least));
      for (int64_t c = 0; c < to.cols; ++c) part[c] = static_cast<float>(part[c] * factor);
    }
  }
}

void ReferenceKernels::sum_moments(Tensor x, Tensor moments) const {
  check_sum_moments(x, moments);
  for (int64_t r = 0; r < x.rows; ++r) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double v = x.row<float>(r)[c];
      sum += v;
      squares += v * v;
    }
    moments.row<float>(r)[0] = static_cast<float>(sum);
    moments.row<float>(r)[1] = static_cast<float>(squares);
  }
}

void ReferenceKernels::cut(Tensor x, float deviations, Tensor moments, int64_t cols) const {
  check_cut(x, moments, cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const auto count = static_cast<double>(cols);
    const double mean = moments.row<float>(r)[0] / count;
    const double variance = moments.row<float>(r)[1] / count - mean * mean;
    const double least = mean + deviations * std::sqrt(std::max(variance, 0.0));
    for (int64_t c = 0; c < x.cols; ++c) {
      float& v = x.row<float>(r)[c];
      v = static_cast<float>(std::max(0.0, v - least));
    }
  }
}

void ReferenceKernels::soft_cap(Tensor x, float cap) const {
  check_soft_cap(x, cap);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      float& v = x.row<float>(r)[c];
      v = static_cast<float>(cap * std::tanh(double{v} / cap));
    }
  }
}

void ReferenceKernels::clamp(Tensor x, float limit) const {
  check_clamp(x, limit);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      float& v = x.row<float>(r)[c];
      v = std::clamp(v, -limit, limit);
    }
  }
}

}  // namespace sluice
