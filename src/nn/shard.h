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

// Some consecutive elements of a dimension.
struct Share {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Share&) const = default;
};

// A dimension of a model that ranks divide: heads, KV heads, the width of an MLP, the vocabulary.
// It is cut once, so that every weight on it is cut alike: the rows of gate and up, the columns of
// down.
struct Dimension {
  int64_t size = 0;         // elements
  int64_t unit = 1;         // elements that stay together: those of a head
  int64_t multiple_of = 1;  // where shares may begin, in elements; the groups of a weight's format
  int64_t padded_to = 0;    // it is divided as if it had this many elements; 0: as it is
  int64_t groups = 1;       // of neighbours, as the heads of a KV head: a rank has some of one

  int64_t units() const { return size / unit; }
  // A rank's share. With at least as many units as ranks, a unit belongs to exactly one rank, and
  // shares differ by at most one unit (of `multiple_of` elements, where that is more than `unit`;
  // the last may have fewer). With fewer units than ranks, units are replicated: rank r holds unit
  // r * units / ranks, so that neighbouring ranks share (KV heads under grouped-query attention).
  // Fewer groups than ranks are replicated alike: the ranks of one divide what is in it.
  Share share(Rank rank) const;
  bool operator==(const Dimension&) const = default;
};

//   by_rows (column-parallel linear: q, k, v, gate, up)      by_cols (row-parallel linear: o, down)
//     rank 0 ████████                                          rank 0  1  2
//     rank 1 ████████                                              ███░░░▒▒▒
//     rank 2 ████████                                              ███░░░▒▒▒
//
// The rows (or columns) are those of a Dimension, or as many as the tensor has in units of `unit`.
class Shard {
 public:
  Shard() = default;  // whole
  static Shard whole() { return {Axis::none, {}}; }
  static Shard by_rows(int64_t unit = 1) { return {Axis::rows, {.unit = unit}}; }
  static Shard by_cols(int64_t unit = 1) { return {Axis::cols, {.unit = unit}}; }
  static Shard by_rows(const Dimension& d) { return {Axis::rows, d}; }
  static Shard by_cols(const Dimension& d) { return {Axis::cols, d}; }

  // Returns whether each rank has some of the inputs, so that the ranks' outputs must be summed.
  bool divides_inputs() const { return axis_ == Axis::cols; }

  // Returns the split of a linear layer's bias when its weight is split so: with the rows, or not
  // at all.
  Shard for_bias() const { return axis_ == Axis::rows ? *this : whole(); }

  // rank.rank in [0, rank.size).
  Cut cut(int64_t rows, int64_t cols, Rank rank) const;

 private:
  enum class Axis : uint8_t { none, rows, cols };
  Shard(Axis axis, const Dimension& dimension) : axis_(axis), dimension_(dimension) {}
  Share share(int64_t size, Rank rank) const;
  Axis axis_ = Axis::none;
  Dimension dimension_;
};

}  // namespace sluice
