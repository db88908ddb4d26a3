// Measures how fast the disk gives the bytes of some files: reads with nothing done to the bytes,
// the bound that loading and streaming are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/read_shape.h"
#include "io/reader.h"

namespace sluice::io {

struct DiskSpeed {
  ReadShape setting;
  uint64_t bytes = 0;
  double seconds = 0;

  double bytes_per_second() const { return static_cast<double>(bytes) / seconds; }
};

struct DiskBandwidth {
  std::vector<DiskSpeed> settings;  // in the order measured
  DiskSpeed best;
  std::string how;  // description of the best one's reader
};

// The settings of measure_disk for a staging area of this size: blocks of 256 KiB to 8 MiB, at most
// 64 in flight.
std::vector<ReadShape> disk_settings(uint64_t staging_bytes);

// Reads about `bytes` of the files, in order, from byte `start` of their concatenation on and round
// again. `staging` (reader.h) holds at least request_bytes x depth. `how` may be null. Reads less
// once a stop is requested.
DiskSpeed measure_setting(std::span<const CheckpointFile> files, std::span<std::byte> staging,
                          const ReadShape& setting, uint64_t start, uint64_t bytes,
                          std::string* how = nullptr, const std::stop_token& stop = {});

// Measures every setting, each going on where the one before stopped; fewer, once a stop is
// requested. Error(refused) when the files
// hold no bytes.
DiskBandwidth measure_disk(std::span<const CheckpointFile> files, std::span<std::byte> staging,
                           uint64_t bytes_per_setting = uint64_t{1} << 30,
                           const std::stop_token& stop = {});

}  // namespace sluice::io
