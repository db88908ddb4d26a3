// The format that all files of the spill directory share: the first bytes are a JSON object, padded
// with zeros to kSpillHeaderBytes, and the last are an index with checksums of all that is between
// (src/plan/spill_layout.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/new_file.h"
#include "src/base/checksum.h"
#include "src/plan/spill_layout.h"

namespace sluice {

struct SpillHeader {
  std::string model;  // the checkpoint's directory
  std::string scheme;
  std::string fingerprint;  // of the checkpoint, the scheme and the rank
  uint64_t tensors = 0;     // of the index
  uint64_t index_offset = 0;
  uint64_t index_bytes = 0;
  std::string index_checksum;  // XXH3-128, which makes the index, and with it the codes, trusted
};

// A tensor's record in the index.
struct SpillRecord {
  static constexpr size_t kPlanes = 4;

  std::array<uint64_t, kPlanes> begin = {};  // of its planes in the file
  std::array<uint64_t, kPlanes> panel_bytes = {};
  uint64_t panels = 0;
  uint64_t panel_scales = 0;
  uint64_t packing = 0;  // SpilledTensor::packing
  double error_squares = 0;
  double value_squares = 0;
  int64_t not_finite = 0;
  int64_t elements = 0;
  float max_error = 0;
  float amax = 0;
  uint32_t planes = 0;
  uint32_t name_bytes = 0;
  uint32_t is_absent = 0;  // the file has not all of its codes
  std::array<std::byte, 52> unused = {};
};
static_assert(sizeof(SpillRecord) == kSpillRecordBytes && io::kMostExtents <= SpillRecord::kPlanes);

// Reads an index once, from its beginning on.
class SpillIndexReader {
 public:
  // fd and path outlive it.
  SpillIndexReader(const io::Fd& fd, const std::filesystem::path& path, const SpillHeader& header);

  uint64_t left() const { return left_; }
  // Fills `to`; false where the index has fewer bytes left. Throws Error(runtime) where the file
  // cannot be read.
  bool read(std::span<std::byte> to);
  bool skip(uint64_t bytes);
  std::string checksum() const { return checksum_.digits(); }  // of all that was read or skipped

 private:
  // Bytes of the file, of which there are some left: `most` or fewer.
  std::span<const std::byte> next(uint64_t most);

  const io::Fd& fd_;
  const std::filesystem::path& path_;
  uint64_t offset_;
  uint64_t left_;
  std::vector<std::byte> memory_;
  std::span<const std::byte> ahead_;  // of memory_
  TextChecksum checksum_;
};

// nullopt where the file is no spill file of this version.
std::optional<SpillHeader> read_spill_header(const std::filesystem::path& path);
// Writes the index, and before all else the header, which gets its size and checksum.
void write_spill_index(const io::NewFile& file, SpillHeader header,
                       std::span<const std::byte> index);

// The checksum of each block of bytes, which are whole blocks, in order (XXH3-64).
void checksum_blocks(std::span<const std::byte> bytes, uint64_t block_bytes,
                     std::span<uint64_t> checksums);
bool blocks_are_intact(std::span<const std::byte> bytes, uint64_t block_bytes,
                       std::span<const uint64_t> checksums);

}  // namespace sluice
