// One vector of a prompt's rows, taken one after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/models/embedding_rules.h"

namespace sluice {

class RowPool {
 public:
  RowPool(Pooling pooling, int64_t tokens);

  // The tokens whose rows are still needed, in this order: [next(), end()).
  int64_t next() const { return next_; }
  int64_t end() const { return end_; }
  bool done() const { return next_ == end_; }
  // The row of next().
  void add(std::span<const float> row);
  void take(std::span<float> vector) const;

 private:
  double weight(int64_t token) const;

  Pooling pooling_;
  int64_t next_;
  int64_t end_;
  double divisor_ = 1;       // of the sums
  std::vector<double> sum_;  // of weighted rows, or the largest of each element
};

}  // namespace sluice
