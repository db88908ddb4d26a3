// Finds the read shape that a disk answers fastest, with the reads of a load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "io/read_shape.h"

namespace sluice {

// The shapes that are tried: 4 to 32 MiB in flight, in reads of 256 KiB to 2 MiB. Some disks are
// faster with more in flight, some with less. The first is the default.
inline constexpr io::ReadShape kReadShapes[] = {{2 << 20, 16},   {1 << 20, 16},   {512 << 10, 32},
                                                {256 << 10, 64}, {512 << 10, 16}, {256 << 10, 32},
                                                {256 << 10, 16}};
// Most bytes that any of them has in flight.
inline constexpr uint64_t kMostBytesInFlight = kReadShapes[0].bytes_in_flight();

// Asks for the known shape, which a benchmark or earlier loads have found, and for kReadShapes in
// turn. Two measurements of one round are some hundredths of a second apart, so that a busy moment
// is the same for both, and a shape that beats the known one in each of three rounds is faster,
// whatever else went on. After the first round only the three fastest are asked for again, if they
// have won. A state machine without I/O or clocks of its own.
class ShapeTrial {
 public:
  // If `tries` is false, `known` is the shape of all reads.
  ShapeTrial(const io::ReadShape& known, bool tries);

  // The shape of the next reads; after the trial, its verdict.
  const io::ReadShape& shape() const { return tried_[at_].shape; }
  // The smallest that shape() can ask for.
  uint64_t least_request_bytes() const;
  // Bytes have arrived, `seconds` after a fixed moment. `busy`: since the previous arrival as many
  // bytes were in flight as the shape demands; other arrivals are not counted.
  void arrived(uint64_t bytes, double seconds, bool busy);
  // The fastest shape, the known one where none is clearly faster; none before the end.
  const std::optional<io::ReadShape>& verdict() const { return verdict_; }

 private:
  struct Tried {
    io::ReadShape shape;
    double rate = 0;  // in the current round [bytes/s]
    // The smallest ratio of its rate to that of the known shape in the same round.
    double least_gain = std::numeric_limits<double>::infinity();
  };

  void next();
  void end_round();

  std::vector<Tried> tried_;  // that are still in question: the known shape, then the fastest first
  std::optional<io::ReadShape> verdict_;
  bool is_over_;
  size_t at_ = 0;  // of tried_
  size_t rounds_ = 0;
  uint64_t settling_ = 0;  // bytes of the shape before that are still to arrive
  uint64_t bytes_ = 0;     // of the measurement that has begun
  double seconds_ = 0;
  double last_ = 0;
};

}  // namespace sluice
