// The size and number of reads that a disk is asked for at a time. Each disk has its own optimum:
// many small reads, or few large ones.
#pragma once

#include <cstdint>

namespace sluice::io {

struct ReadShape {
  uint64_t request_bytes = 2u << 20;  // of one read
  int depth = 16;                     // reads in flight

  constexpr uint64_t bytes_in_flight() const {
    return request_bytes * static_cast<uint64_t>(depth);
  }
  bool operator==(const ReadShape&) const = default;
};

}  // namespace sluice::io
