// All tensor-parallel arithmetic. A Shard says how a checkpoint tensor is divided over ranks; cut()
// gives one rank's part.
#pragma once

#include <cstdint>

namespace sluice {

struct Rank {
  int rank = 0;
  int size = 1;
};

// A rectangle of a full [rows, cols] tensor.
struct Cut {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t col = 0;
  int64_t cols = 0;
  bool operator==(const Cut&) const = default;
};

//   by_rows (column-parallel linear: q, k, v, gate, up)      by_cols (row-parallel linear: o, down)
//     rank 0 ████████                                          rank 0  1  2
//     rank 1 ████████                                              ███░░░▒▒▒
//     rank 2 ████████                                              ███░░░▒▒▒
//
// `unit` rows (or columns) stay together: a head, for instance. With at least as many units as
// ranks, unit u belongs to exactly one rank and shares differ by at most one unit. With fewer units
// than ranks, units are replicated: rank r holds unit r * units / ranks, so that neighbouring ranks
// share (KV heads under grouped-query attention).
class Shard {
 public:
  static Shard whole() { return {Axis::none, 1}; }
  static Shard by_rows(int64_t unit = 1) { return {Axis::rows, unit}; }
  static Shard by_cols(int64_t unit = 1) { return {Axis::cols, unit}; }

  // How a linear layer's bias is divided when its weight is divided so: with the rows, or not at
  // all.
  Shard for_bias() const { return axis_ == Axis::rows ? *this : whole(); }

  // rows (or cols) is a multiple of unit; rank.rank in [0, rank.size).
  Cut cut(int64_t rows, int64_t cols, Rank rank) const;

 private:
  enum class Axis : uint8_t { none, rows, cols };
  Shard(Axis axis, int64_t unit) : axis_(axis), unit_(unit) {}
  Axis axis_;
  int64_t unit_;
};

}  // namespace sluice
