#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::scale(Tensor x, float factor, const float* by) const {
  check_same_shape(x, x);
  const float product = by != nullptr ? factor * *by : factor;
  for_rows(x, [&](int64_t row) { ops_.scale(x.row<float>(row), product, x.cols); });
}

void CpuKernels::scale_heads(Tensor x, Tensor factors) const {
  check_scale_heads(x, factors);
  const int64_t dim = x.cols / factors.cols;
  for_rows(x, [&](int64_t row) {
    float* to = x.row<float>(row);
    const float* by = factors.row<float>(factors.rows == 1 ? 0 : row);
    if (dim == 1) {
      for (int64_t c = 0; c < x.cols; ++c) to[c] *= by[c];
      return;
    }
    for (int64_t h = 0; h < factors.cols; ++h) ops_.scale(to + h * dim, by[h], dim);
  });
}

namespace {

constexpr int64_t kBlock = 256;  // columns that are read before any is written

// A block of columns of each part.
void mix_block(const float* x, int64_t parts, const float* weights, float added, int64_t dim,
               int64_t count, std::span<float> y) {
  std::array<float, kMostParts * kBlock> from;
  for (int64_t j = 0; j < parts; ++j) std::copy_n(x + j * dim, count, from.data() + j * kBlock);
  for (int64_t k = 0; k * dim < std::ssize(y); ++k) {
    float* to = y.data() + k * dim;
    for (int64_t j = 0; j < parts; ++j) {
      const float by = weights[k * parts + j] + added;
      const float* part = from.data() + j * kBlock;
      for (int64_t c = 0; c < count; ++c) to[c] += by * part[c];
    }
  }
}

double mean_square(std::span<const float> row) {
  double sum = 0;
  for (const float v : row) sum += double{v} * v;
  return sum / static_cast<double>(row.size());
}

}  // namespace

void CpuKernels::mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y) const {
  check_mix(x, weights, dim, y);
  const int64_t parts = x.cols / dim;
  for_rows(y, [&](int64_t row) {
    for (int64_t c = 0; c < dim; c += kBlock) {
      const auto end = static_cast<size_t>(y.cols - c);
      mix_block(x.row<float>(row) + c, parts, weights.row<float>(row), added, dim,
                std::min(kBlock, dim - c), {y.row<float>(row) + c, end});
    }
  });
}

void CpuKernels::match_squares(Tensor x, Tensor to, float least) const {
  check_match_squares(x, to, least);
  const auto dim = static_cast<size_t>(to.cols);
  for_rows(x, [&](int64_t row) {
    const double target = mean_square({to.row<float>(row), dim});
    for (int64_t first = 0; first < x.cols; first += to.cols) {
      float* part = x.row<float>(row) + first;
      const double own = std::max(mean_square({part, dim}), double{least});
      ops_.scale(part, static_cast<float>(std::sqrt(target / own)), to.cols);
    }
  });
}

void CpuKernels::sum_moments(Tensor x, Tensor moments) const {
  check_sum_moments(x, moments);
  for_rows(x, [&](int64_t row) {
    double sum = 0, squares = 0;
    for (const float v : std::span(x.row<float>(row), static_cast<size_t>(x.cols))) {
      sum += v;
      squares += double{v} * v;
    }
    moments.row<float>(row)[0] = static_cast<float>(sum);
    moments.row<float>(row)[1] = static_cast<float>(squares);
  });
}

void CpuKernels::cut(Tensor x, float deviations, Tensor moments, int64_t cols) const {
  check_cut(x, moments, cols);
  for_rows(x, [&](int64_t row) {
    const auto count = static_cast<float>(cols);
    const float mean = moments.row<float>(row)[0] / count;
    const float variance = moments.row<float>(row)[1] / count - mean * mean;
    const float least = mean + deviations * std::sqrt(std::max(variance, 0.0f));
    for (float& v : std::span(x.row<float>(row), static_cast<size_t>(x.cols)))
      v = v > least ? v - least : 0;
  });
}

void CpuKernels::soft_cap(Tensor x, float cap) const {
  check_soft_cap(x, cap);
  for_rows(x, [&](int64_t row) { ops_.soft_cap(x.row<float>(row), cap, x.cols); });
}

void CpuKernels::clamp(Tensor x, float limit) const {
  check_clamp(x, limit);
  for_rows(x, [&](int64_t row) { ops_.clamp(x.row<float>(row), limit, x.cols); });
}

}  // namespace sluice
