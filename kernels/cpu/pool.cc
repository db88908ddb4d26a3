#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

constexpr int64_t kPoolColumns = 128;  // of a job

// PoolSums over a window of some columns, which are three rows of a state.
struct PoolSums {
  float *largest, *total, *values;

  void begin(int64_t cols) const { std::fill_n(total, cols, 0.0F); }
  void add(const float* gates, const float* bias, const float* x, int64_t cols) const {
    for (int64_t c = 0; c < cols; ++c) {
      const float gate = gates[c] + bias[c];
      const bool first = total[c] == 0;
      const float top = first ? gate : std::max(largest[c], gate);
      const float keep = first ? 0 : std::exp(largest[c] - top), take = std::exp(gate - top);
      total[c] = total[c] * keep + take;
      values[c] = values[c] * keep + x[c] * take;
      largest[c] = top;
    }
  }
  void copy(const PoolSums& to, int64_t cols) const {
    std::copy_n(largest, cols, to.largest);
    std::copy_n(total, cols, to.total);
    std::copy_n(values, cols, to.values);
  }
};

void write_pool_mean(const PoolSums& own, const PoolSums* before, int64_t cols, float* out) {
  for (int64_t c = 0; c < cols; ++c) {
    if (before == nullptr || before->total[c] == 0) {
      out[c] = own.values[c] / own.total[c];
      continue;
    }
    const float top = std::max(own.largest[c], before->largest[c]);
    const float a = std::exp(own.largest[c] - top), b = std::exp(before->largest[c] - top);
    out[c] =
        (own.values[c] * a + before->values[c] * b) / (own.total[c] * a + before->total[c] * b);
  }
}

// Some columns of one chunk.
struct PoolJob {
  const Tensor &values, &gates, &out;
  const PoolParams& params;
  const StateRows& state;
  size_t chunk;
  int64_t column, cols;

  PoolSums sums(int64_t first) const {
    const auto row = [&](int64_t i) { return state_row(state, chunk, first + i) + column; };
    return {row(0), row(1), row(2)};
  }
  void run() const {
    const SequenceChunk& c = state.groups.front().chunks[chunk];
    for (int64_t i = 0; i < params.state_rows() && c.first_position == 0; ++i)
      std::fill_n(state_row(state, chunk, i) + column, cols, 0.0F);
    const PoolSums own = sums(0);
    const int64_t other = column + (params.overlaps ? out.cols : 0);
    for (int64_t n = 0; n < c.rows; ++n) {
      const int64_t r = c.first_row + n, place = (c.first_position + n) % params.tokens;
      const float *x = values.row<float>(r), *gate = gates.row<float>(r);
      const float* bias = params.bias + place * gates.cols;
      const bool ends = place + 1 == params.tokens;
      float* to = out.row<float>(r) + column;
      if (place == 0) own.begin(cols);
      own.add(gate + other, bias + other, x + other, cols);
      if (!ends) std::fill_n(to, cols, 0.0F);
      if (!params.overlaps) {
        if (ends) write_pool_mean(own, nullptr, cols, to);
        continue;
      }
      const PoolSums next = sums(3), before = sums(6);
      if (place == 0) next.begin(cols);
      next.add(gate + column, bias + column, x + column, cols);
      if (!ends) continue;
      write_pool_mean(own, &before, cols, to);
      next.copy(before, cols);
    }
  }
};

}  // namespace

void CpuKernels::pool(Tensor values, Tensor gates, const PoolParams& params, const StateRows& state,
                      Tensor out) const {
  check_pool(values, gates, params, state, out);
  const int64_t parts = ceil_div(out.cols, kPoolColumns);
  const int64_t jobs = std::ssize(state.groups.front().chunks) * parts;
  pool_.parallel_for(jobs, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % parts * kPoolColumns;
      PoolJob{values, gates,
              out,    params,
              state,  static_cast<size_t>(i / parts),
              column, std::min(kPoolColumns, out.cols - column)}
          .run();
    }
  });
}

}  // namespace sluice
