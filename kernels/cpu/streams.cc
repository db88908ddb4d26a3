#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

float stream_sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// Divides each column of m [size][size] by its sum, or each row.
void divide_lines(float* m, int64_t size, float eps, bool columns) {
  const int64_t step = columns ? size : 1, next = columns ? 1 : size;
  for (int64_t i = 0; i < size; ++i) {
    float sum = eps;
    for (int64_t j = 0; j < size; ++j) sum += m[i * next + j * step];
    for (int64_t j = 0; j < size; ++j) m[i * next + j * step] /= sum;
  }
}

// Logits become the weights of streams among themselves.
void mix_streams(const StreamMix& mix, float* m) {
  const int64_t size = mix.streams;
  for (int64_t j = 0; j < size; ++j) {
    float* row = m + j * size;
    const float largest = *std::max_element(row, row + size);
    float sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += row[k] = std::exp(row[k] - largest);
    for (int64_t k = 0; k < size; ++k) row[k] = row[k] / sum + mix.eps;
  }
  divide_lines(m, size, mix.eps, true);
  for (int64_t i = 1; i < mix.iterations; ++i) {
    divide_lines(m, size, mix.eps, false);
    divide_lines(m, size, mix.eps, true);
  }
}

// The logits of one row become weights. `root`: what divides them.
void weigh_streams(const StreamMix& mix, float root, std::span<float> logits) {
  const int64_t s = mix.streams;
  for (int64_t i = 0; i < std::ssize(logits); ++i) {
    float& x = logits[static_cast<size_t>(i)];
    x = x / root * mix.scales[std::min<int64_t>(i / s, 2)] + mix.biases[i];
    if (i < s) x = stream_sigmoid(x) + mix.eps;
    if (i >= s && i < 2 * s) x = 2 * stream_sigmoid(x);
  }
  if (std::ssize(logits) > s) mix_streams(mix, logits.data() + 2 * s);
}

}  // namespace

void CpuKernels::read_streams(Tensor streams, const StreamMix& mix, Tensor logits,
                              Tensor out) const {
  check_read_streams(streams, mix, logits, out);
  for_rows(streams, [&](int64_t r) {
    const float* x = streams.row<float>(r);
    float *weights = logits.row<float>(r), *to = out.row<float>(r);
    const float squares = ops_.sum_squares(x, streams.cols);
    const float root = std::sqrt(squares / static_cast<float>(streams.cols) + mix.norm_eps);
    weigh_streams(mix, root, {weights, static_cast<size_t>(logits.cols)});
    for (int64_t c = 0; c < out.cols; ++c) to[c] = weights[0] * x[c];
    for (int64_t k = 1; k < mix.streams; ++k)
      for (int64_t c = 0; c < out.cols; ++c) to[c] += weights[k] * x[k * out.cols + c];
  });
}

void CpuKernels::write_streams(Tensor x, Tensor weights, Tensor streams) const {
  check_write_streams(x, weights, streams);
  const int64_t s = streams.cols / x.cols;
  for_rows(streams, [&](int64_t r) {
    const float *w = weights.row<float>(r), *from = x.row<float>(r);
    float* to = streams.row<float>(r);
    for (int64_t c = 0; c < x.cols; ++c) {
      std::array<float, kMostStreams> sums;
      for (int64_t k = 0; k < s; ++k) sums[static_cast<size_t>(k)] = w[k] * from[c];
      for (int64_t j = 0; j < s; ++j)
        for (int64_t k = 0; k < s; ++k)
          sums[static_cast<size_t>(k)] += w[s + j * s + k] * to[j * x.cols + c];
      for (int64_t k = 0; k < s; ++k) to[k * x.cols + c] = sums[static_cast<size_t>(k)];
    }
  });
}

}  // namespace sluice
