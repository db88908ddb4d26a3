// The pace at which a load asks a disk for its reads, and what that shows of the disk: by a read
// shape, or by several in turn. A state machine without I/O or clocks of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "io/read_shape.h"
#include "src/load/disk_rate.h"
#include "src/load/shape_trial.h"

namespace sluice {

// Number of slot-sized reads in flight with which the disk is fastest.
size_t reads_in_flight(const io::ReadShape& shape, uint64_t slot_bytes);

class ReadPace {
 public:
  // Slots of which reads have `slots`. Without room for all shapes none is tried.
  ReadPace(const io::ReadShape& known, bool tries, uint64_t slot_bytes, size_t slots);

  size_t most_in_flight() const;
  // Bytes of each of a slot's reads: now, and at least.
  uint64_t request_bytes() const { return trial_.shape().request_bytes; }
  uint64_t least_request_bytes() const { return trial_.least_request_bytes(); }
  // A slot's bytes have arrived, `seconds` after a fixed moment; it was one of `in_flight`.
  void arrived(uint64_t bytes, double seconds, size_t in_flight);

  // Results, if enough was measured.
  std::optional<double> disk_rate() const { return disk_rate_.sustained(); }  // [bytes/s]
  const std::optional<io::ReadShape>& fastest() const { return trial_.verdict(); }

 private:
  uint64_t slot_bytes_;
  size_t slots_;
  ShapeTrial trial_;
  DiskRate disk_rate_;
};

}  // namespace sluice
