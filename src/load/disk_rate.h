// How fast a disk is, as a load sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

// Counts only while the disk has enough to do: what waits for encoding, or for memory that the
// system has to find first, says nothing of the disk.
class DiskRate {
 public:
  // Bytes have arrived, `seconds` after some moment. `busy`: since the arrival before, many reads
  // were in flight.
  void arrived(uint64_t bytes, double seconds, bool busy);
  // Bytes a second: the median over stretches of 64 MiB, so that neither a slow while nor a lucky
  // one counts. None of less than 256 MiB.
  std::optional<double> sustained() const;

 private:
  double last_ = 0;
  uint64_t bytes_ = 0;  // of the stretch that has begun
  double seconds_ = 0;
  uint64_t measured_ = 0;  // in stretches before
  std::vector<double> rates_;
};

}  // namespace sluice
