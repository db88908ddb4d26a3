// The format that all files of the spill directory share: the first bytes are a JSON object, padded
// with zeros to kSpillHeaderBytes, and the last are an index with checksums of all that is between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "io/new_file.h"

namespace sluice {

struct SpillHeader {
  std::string model;  // the checkpoint's directory
  std::string scheme;
  std::string fingerprint;  // of the checkpoint and of all that decides how it is packed
  uint64_t tensors = 0;     // records at the beginning of the index
  uint64_t index_offset = 0;
  uint64_t index_bytes = 0;
  std::string index_checksum;  // XXH3-128, which makes the index, and with it the codes, trusted
};

// nullopt where the file is no spill file of this version.
std::optional<SpillHeader> read_spill_header(const std::filesystem::path& path);
// Reads the index, of header.index_bytes. Returns its checksum.
std::string read_spill_index(const io::Fd& fd, const std::filesystem::path& path,
                             const SpillHeader& header, std::span<std::byte> index);
// Writes the index, and before all else the header, which gets its size and checksum. Publishes the
// file.
io::CheckpointFile finish_spill_file(io::NewFile& file, SpillHeader header,
                                     std::span<const std::byte> index);

// The checksum of each block of bytes, which are whole blocks, in order (XXH3-64).
void checksum_blocks(std::span<const std::byte> bytes, uint64_t block_bytes,
                     std::span<uint64_t> checksums);
bool blocks_are_intact(std::span<const std::byte> bytes, uint64_t block_bytes,
                       std::span<const uint64_t> checksums);

}  // namespace sluice
