// A file that is written in several places at once, at each from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/new_file.h"
#include "src/base/checksum.h"

namespace sluice::io {

// Bytes [begin, end) of the file that come in order.
struct OutputLane {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The file takes its room on the disk at once, and appears under its name when it is complete.
class LanesOutput {
 public:
  // The lanes follow one another, from the beginning of the file to its end. Each has a part of
  // `memory`, which outlives this and begins at a multiple of kDirectAlignment. Errors as of
  // NewFile.
  LanesOutput(const std::filesystem::path& path, std::vector<OutputLane> lanes,
              std::span<std::byte> memory);

  // Adds the next bytes of a lane.
  void write(size_t lane, std::span<const std::byte> bytes);
  // Once all are full. Returns the checksum of all bytes.
  std::string finish();

 private:
  struct Lane {
    OutputLane range;
    std::span<std::byte> block;  // bytes lie in it as in the file
    uint64_t written = 0;        // offsets in the file
    uint64_t at = 0;
    TextChecksum checksum = {};
  };
  void flush(Lane& lane);

  NewFile file_;
  std::vector<Lane> lanes_;
};

// The checksum that finish() has returned, of the file as it is now. Only `block` of it is held.
// Throws Error where it cannot be read, or has another size.
std::string lanes_checksum(const std::filesystem::path& path, std::span<const OutputLane> lanes,
                           std::span<std::byte> block, const std::stop_token& stop);

}  // namespace sluice::io
