#include "src/nn/shard.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {

Share Dimension::share(Rank rank) const {
  check(rank.size > 0 && rank.rank >= 0 && rank.rank < rank.size, "rank out of range");
  check(unit > 0 && multiple_of > 0 && size % unit == 0, "a dimension is made of whole units");
  if (groups > 1) {
    const auto ranks_before = [&](int64_t group) { return ceil_div(group * rank.size, groups); };
    const int64_t group = rank.rank * groups / rank.size, first = ranks_before(group);
    const Dimension one{.size = size / groups, .unit = unit, .multiple_of = multiple_of};
    Share part = one.share(
        {static_cast<int>(rank.rank - first), static_cast<int>(ranks_before(group + 1) - first)});
    part.begin += group * one.size;
    return part;
  }
  const int64_t step = std::lcm(unit, multiple_of);
  const int64_t steps = ceil_div(std::max(size, padded_to), step);
  int64_t begin = steps * rank.rank / rank.size;
  int64_t end =
      steps < rank.size ? std::min(begin + 1, steps) : steps * (rank.rank + 1) / rank.size;
  begin = std::min(begin * step, size);
  return {begin, std::min(end * step, size) - begin};
}

Share Shard::share(int64_t size, Rank rank) const {
  check(dimension_.size == 0 || dimension_.size == size, "a tensor is as long as its dimension");
  Dimension all = dimension_;
  all.size = size;
  return all.share(rank);
}

Cut Shard::cut(int64_t rows, int64_t cols, Rank rank) const {
  if (axis_ == Axis::rows) {
    Share r = share(rows, rank);
    return {r.begin, r.count, 0, cols};
  }
  if (axis_ == Axis::cols) {
    Share c = share(cols, rank);
    return {0, rows, c.begin, c.count};
  }
  return {0, rows, 0, cols};
}

}  // namespace sluice
