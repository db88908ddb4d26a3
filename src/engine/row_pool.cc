#include "src/engine/row_pool.h"

#include <algorithm>
#include <cmath>

namespace sluice {

RowPool::RowPool(Pooling pooling, int64_t tokens)
    : pooling_(pooling), next_(pooling == Pooling::last ? tokens - 1 : 0), end_(tokens) {
  if (pooling == Pooling::first) end_ = std::min<int64_t>(tokens, 1);
  const auto count = static_cast<double>(tokens);
  if (pooling == Pooling::mean) divisor_ = count;
  if (pooling == Pooling::root_mean) divisor_ = std::sqrt(count);
  if (pooling == Pooling::weighted_mean) divisor_ = count * (count + 1) / 2;
}

double RowPool::weight(int64_t token) const {
  return pooling_ == Pooling::weighted_mean ? static_cast<double>(token + 1) : 1;
}

void RowPool::add(std::span<const float> row) {
  if (sum_.empty()) {
    sum_.assign(row.begin(), row.end());
    ++next_;  // of the first token the weight is 1
    return;
  }
  const bool largest = pooling_ == Pooling::max;
  const double weight = this->weight(next_++);
  for (size_t i = 0; i < sum_.size(); ++i) {
    const auto x = static_cast<double>(row[i]);
    // A NaN stays: the vector is refused.
    if (!largest) sum_[i] += weight * x;
    if (largest && !(sum_[i] >= x)) sum_[i] = std::isnan(sum_[i]) ? sum_[i] : x;
  }
}

void RowPool::take(std::span<float> vector) const {
  for (size_t i = 0; i < sum_.size(); ++i) vector[i] = static_cast<float>(sum_[i] / divisor_);
}

}  // namespace sluice
