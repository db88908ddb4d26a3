// Finds the read shape that a disk answers fastest, with the reads of a load.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/read_shape.h"

namespace sluice {

// The shapes that are tried; the first is the default.
inline constexpr std::array<io::ReadShape, 4> kReadShapes{
    {{2 << 20, 16}, {1 << 20, 16}, {512 << 10, 32}, {256 << 10, 64}}};

// Asks for the shapes in turn, in three rounds. Two measurements of one round are some hundredths
// of a second apart, so that a busy moment is the same for both, and one that wins in every round
// is faster, whatever else went on. A state machine without I/O or clocks of its own.
class ShapeTrial {
 public:
  // If `tries` is false, `known` is the shape of all reads.
  ShapeTrial(const io::ReadShape& known, bool tries)
      : chosen_(known), round_(tries ? 0 : kRounds) {}

  // The shape of the next reads; after the trial, its verdict.
  io::ReadShape shape() const { return is_over() ? chosen_ : kReadShapes[shape_]; }
  // The smallest that shape() can ask for.
  uint64_t least_request_bytes() const {
    return is_over() ? chosen_.request_bytes : kReadShapes.back().request_bytes;
  }
  // Bytes have arrived, `seconds` after a fixed moment. `busy`: since the previous arrival as many
  // bytes were in flight as the shape demands; other arrivals are not counted.
  void arrived(uint64_t bytes, double seconds, bool busy);
  // The fastest shape, the first where none is clearly faster; none before all have been tried.
  std::optional<io::ReadShape> verdict() const { return verdict_; }

 private:
  static constexpr size_t kRounds = 3;

  bool is_over() const { return round_ == kRounds; }
  void next();
  io::ReadShape fastest() const;

  io::ReadShape chosen_;
  std::optional<io::ReadShape> verdict_;
  std::array<std::array<double, kReadShapes.size()>, kRounds> rates_{};  // bytes/s
  size_t round_;
  size_t shape_ = 0;
  uint64_t settling_ = 0;  // bytes of the shape before that are still to arrive
  uint64_t bytes_ = 0;     // of the measurement that has begun
  double seconds_ = 0;
  double last_ = 0;
};

}  // namespace sluice
