#include <algorithm>
#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

// The sums of one column over a window, in three rows of a state from `first` on.
struct PoolSums {
  float *largest, *total, *values;
};

PoolSums pool_sums(const StateRows& state, size_t chunk, int64_t first, int64_t column) {
  const auto row = [&](int64_t i) { return state_row(state, chunk, first + i) + column; };
  return {row(0), row(1), row(2)};
}

void add_to_pool(const PoolSums& sums, double gate, double value) {
  const bool first = *sums.total == 0;
  const double top = first ? gate : std::max<double>(*sums.largest, gate);
  const double keep = first ? 0 : std::exp(*sums.largest - top), take = std::exp(gate - top);
  *sums.total = static_cast<float>(*sums.total * keep + take);
  *sums.values = static_cast<float>(*sums.values * keep + value * take);
  *sums.largest = static_cast<float>(top);
}

double pool_mean(const PoolSums& a, const PoolSums& b) {
  const double top = *b.total == 0 ? *a.largest : std::max(*a.largest, *b.largest);
  const double of_a = std::exp(*a.largest - top);
  const double of_b = *b.total == 0 ? 0 : std::exp(*b.largest - top);
  return (*a.values * of_a + *b.values * of_b) / (*a.total * of_a + *b.total * of_b);
}

void copy_pool(const PoolSums& from, const PoolSums& to) {
  *to.largest = *from.largest;
  *to.total = *from.total;
  *to.values = *from.values;
}

}  // namespace

void ReferenceKernels::pool(Tensor values, Tensor gates, const PoolParams& params,
                            const StateRows& state, Tensor out) const {
  check_pool(values, gates, params, state, out);
  const auto chunks = state.groups.front().chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (int64_t c = 0; c < out.cols; ++c) {
      const int64_t other = params.overlaps ? out.cols + c : c;
      for (int64_t row = 0; row < params.state_rows() && chunks[i].first_position == 0; ++row)
        state_row(state, i, row)[c] = 0;
      const PoolSums own = pool_sums(state, i, 0, c);
      for (int64_t n = 0; n < chunks[i].rows; ++n) {
        const int64_t r = chunks[i].first_row + n;
        const int64_t place = (chunks[i].first_position + n) % params.tokens;
        const auto gate = [&](int64_t column) {
          return double{gates.row<float>(r)[column]} + params.bias[place * gates.cols + column];
        };
        if (place == 0) *own.total = 0;
        add_to_pool(own, gate(other), values.row<float>(r)[other]);
        const bool ends = place + 1 == params.tokens;
        if (!params.overlaps) {
          out.row<float>(r)[c] = ends ? *own.values / *own.total : 0;
          continue;
        }
        const PoolSums next = pool_sums(state, i, 3, c), before = pool_sums(state, i, 6, c);
        if (place == 0) *next.total = 0;
        add_to_pool(next, gate(c), values.row<float>(r)[c]);
        out.row<float>(r)[c] = ends ? static_cast<float>(pool_mean(own, before)) : 0;
        if (ends) copy_pool(next, before);
      }
    }
  }
}

}  // namespace sluice
