// The rate of a disk, as observed by a load.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

// Counts only while enough reads are in flight: waits for encoding, or for pages that the system
// has to allocate, say nothing about the disk.
class DiskRate {
 public:
  // Bytes have arrived, `seconds` after some moment. `busy`: since the arrival before, many reads
  // were in flight.
  void arrived(uint64_t bytes, double seconds, bool busy);
  // Bytes a second: the median over stretches of 64 MiB, so that outliers do not count. None for
  // less than 256 MiB.
  std::optional<double> sustained() const;

 private:
  double last_ = 0;
  uint64_t bytes_ = 0;  // bytes of the current stretch
  double seconds_ = 0;
  uint64_t measured_ = 0;  // bytes in earlier stretches
  std::vector<double> rates_;
};

}  // namespace sluice
