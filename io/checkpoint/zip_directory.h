// The directory of a zip archive: where its members lie. Nothing is decompressed.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

namespace sluice::io {

struct ZipMember {
  std::string name;
  uint64_t offset = 0;  // bytes from the start of the file to its data; 0 unless it is stored
  uint64_t bytes = 0;   // of its contents
  bool stored = true;   // its data are its contents: it is neither compressed nor encrypted
  uint32_t crc = 0;     // CRC-32 of its contents, as the directory has it
};

// Reads a stored member, and returns whether it has its CRC.
bool has_its_crc(const Fd& fd, const CheckpointFile& file, const ZipMember& member);

// Reads the members' places, in the order of the directory. Data of stored members lie inside the
// file and do not overlap, and names are unique. `where` names the file in errors. Throws
// Error(refused).
std::vector<ZipMember> read_zip_directory(const Fd& fd, const CheckpointFile& file,
                                          const std::string& where);

}  // namespace sluice::io
