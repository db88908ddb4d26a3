#include <array>
#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

double stream_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

using StreamMatrix = std::array<std::array<double, kMostStreams>, kMostStreams>;

// Divides each column by its sum, or each row.
void divide_lines(StreamMatrix& m, size_t size, double eps, bool columns) {
  for (size_t i = 0; i < size; ++i) {
    double sum = eps;
    for (size_t j = 0; j < size; ++j) sum += columns ? m[j][i] : m[i][j];
    for (size_t j = 0; j < size; ++j) (columns ? m[j][i] : m[i][j]) /= sum;
  }
}

void mix_streams(const StreamMix& mix, StreamMatrix& m) {
  const auto size = static_cast<size_t>(mix.streams);
  for (size_t j = 0; j < size; ++j) {
    double largest = m[j][0], sum = 0;
    for (size_t k = 1; k < size; ++k) largest = std::max(largest, m[j][k]);
    for (size_t k = 0; k < size; ++k) sum += m[j][k] = std::exp(m[j][k] - largest);
    for (size_t k = 0; k < size; ++k) m[j][k] = m[j][k] / sum + mix.eps;
  }
  divide_lines(m, size, mix.eps, true);
  for (int64_t i = 1; i < mix.iterations; ++i) {
    divide_lines(m, size, mix.eps, false);
    divide_lines(m, size, mix.eps, true);
  }
}

}  // namespace

void ReferenceKernels::read_streams(Tensor streams, const StreamMix& mix, Tensor logits,
                                    Tensor out) const {
  check_read_streams(streams, mix, logits, out);
  const int64_t s = mix.streams;
  for (int64_t r = 0; r < out.rows; ++r) {
    const float* x = streams.row<float>(r);
    float* logit = logits.row<float>(r);
    double squares = 0;
    for (int64_t c = 0; c < streams.cols; ++c) squares += double{x[c]} * x[c];
    const double root = std::sqrt(squares / static_cast<double>(streams.cols) + mix.norm_eps);
    const auto at = [&](int64_t i, int64_t kind) {
      return logit[i] / root * mix.scales[kind] + mix.biases[i];
    };
    for (int64_t c = 0; c < out.cols; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < s; ++k)
        sum += (stream_sigmoid(at(k, 0)) + mix.eps) * x[k * out.cols + c];
      out.row<float>(r)[c] = static_cast<float>(sum);
    }
    if (logits.cols == s) continue;
    StreamMatrix m;
    for (int64_t i = 0; i < s * s; ++i)
      m[static_cast<size_t>(i / s)][static_cast<size_t>(i % s)] = at(2 * s + i, 2);
    mix_streams(mix, m);
    for (int64_t k = s; k < 2 * s; ++k) logit[k] = static_cast<float>(2 * stream_sigmoid(at(k, 1)));
    for (int64_t i = 0; i < s * s; ++i)
      logit[2 * s + i] =
          static_cast<float>(m[static_cast<size_t>(i / s)][static_cast<size_t>(i % s)]);
  }
}

void ReferenceKernels::write_streams(Tensor x, Tensor weights, Tensor streams) const {
  check_write_streams(x, weights, streams);
  const int64_t s = streams.cols / x.cols;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* w = weights.row<float>(r);
    float* to = streams.row<float>(r);
    for (int64_t c = 0; c < x.cols; ++c) {
      std::array<double, kMostStreams> sums{};
      for (int64_t k = 0; k < s; ++k) {
        double& sum = sums[static_cast<size_t>(k)];
        sum = double{w[k]} * x.row<float>(r)[c];
        for (int64_t j = 0; j < s; ++j) sum += double{w[s + j * s + k]} * to[j * x.cols + c];
      }
      for (int64_t k = 0; k < s; ++k)
        to[k * x.cols + c] = static_cast<float>(sums[static_cast<size_t>(k)]);
    }
  }
}

}  // namespace sluice
