// The files of a checkpoint, open for a reader: past the page cache where the file system can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/reader.h"
#include "io/system_calls.h"

namespace sluice::io {

struct OpenFile {
  Fd fd;
  std::string path;         // for messages
  uint64_t size = 0;        // bytes
  bool direct = false;      // opened with O_DIRECT, which works for kDirectAlignment
  bool copies = false;      // a read copies from memory, or may: a thread has to do it
  bool drop_cache = false;  // its pages must leave the page cache again
  bool is_dummy = false;    // io/dummy.h; `fd` is none
  // io/joined_file.h: `fd` is none, and these are the files of its parts.
  std::shared_ptr<const JoinedFile> joined = {};
  std::vector<OpenFile> parts = {};
};

// Opens every file and compares it with what it was. `scratch` (kDirectAlignment bytes, aligned
// to that) takes a trial read where the kernel does not say whether O_DIRECT works.
std::vector<OpenFile> open_files(std::span<const CheckpointFile> files,
                                 const ReaderOptions& options, std::span<std::byte> scratch,
                                 const SystemCalls& calls);

// "O_DIRECT", "through the page cache", ...
std::string access_description(std::span<const OpenFile> files, const ReaderOptions& options);

// Bytes that the file has now.
uint64_t size_now(const OpenFile& file, const SystemCalls& calls);

// Drops what the page cache holds of [begin, end), if that is wanted; but not the page that `end`
// lies in, because the next read begins there.
void drop_behind(const OpenFile& file, uint64_t begin, uint64_t end, const SystemCalls& calls);
// Drops everything else, when reading is over.
void drop_all(std::span<const OpenFile> files, const SystemCalls& calls);

}  // namespace sluice::io
