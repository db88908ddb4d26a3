#include "src/nn/shard.h"

#include "src/base/error.h"

namespace sluice {
namespace {

struct Range {
  int64_t begin;
  int64_t count;
};

Range share(int64_t length, int64_t unit, Rank rank) {
  check(unit > 0 && length % unit == 0, "a shard's unit must divide its tensor");
  int64_t units = length / unit;
  if (units < rank.size) {
    return {rank.rank * units / rank.size * unit, units == 0 ? 0 : unit};
  }
  int64_t begin = units * rank.rank / rank.size;
  int64_t end = units * (rank.rank + 1) / rank.size;
  return {begin * unit, (end - begin) * unit};
}

}  // namespace

Cut Shard::cut(int64_t rows, int64_t cols, Rank rank) const {
  check(rank.size > 0 && rank.rank >= 0 && rank.rank < rank.size, "rank out of range");
  if (axis_ == Axis::rows) {
    Range r = share(rows, unit_, rank);
    return {r.begin, r.count, 0, cols};
  }
  if (axis_ == Axis::cols) {
    Range c = share(cols, unit_, rank);
    return {0, rows, c.begin, c.count};
  }
  return {0, rows, 0, cols};
}

}  // namespace sluice
