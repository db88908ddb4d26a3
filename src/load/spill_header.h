// The first bytes of a spill file: a JSON object, padded with zeros to kSpillHeaderBytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

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

std::string spill_header_text(const SpillHeader& header);
// nullopt where the file is no spill file of this version.
std::optional<SpillHeader> read_spill_header(const std::filesystem::path& path);

}  // namespace sluice
