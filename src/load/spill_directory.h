// The directory of spill files: one for each checkpoint, scheme and rank. Processes share it; a
// removed file stays readable for processes that have it open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/system_calls.h"

namespace sluice {

// $XDG_CACHE_HOME/sluice/spill, or ~/.cache/sluice/spill; empty when there is neither.
std::filesystem::path default_spill_directory();

struct SpillFileInfo {
  std::filesystem::path path;
  uint64_t bytes = 0;    // on disk
  int64_t last_use = 0;  // seconds since 1970
  std::string model;     // owner of its weights; empty: unreadable, or not finished
  std::string scheme;
};

// The least recently used first, unfinished ones too. A directory that does not exist is empty.
std::vector<SpillFileInfo> list_spill_files(const std::filesystem::path& directory);

// Removes all files but those that a running process writes. Returns the bytes removed.
uint64_t clear_spill_files(const std::filesystem::path& directory);

// Room for a new file in a directory that may hold `limit` bytes, after files are removed, the
// least recently used first; fewer than `wanted` bytes if that is not enough. The file to be
// replaced does not count against the limit, but its disk space is not free before the new one is
// complete.
struct SpillRoom {
  uint64_t bytes = 0;
  std::vector<SpillFileInfo> to_remove;
};
SpillRoom spill_room(const std::filesystem::path& file, uint64_t wanted, uint64_t limit,
                     const io::SystemCalls& calls = io::system_calls());

// "20GiB", or "50%" of what the file system has free with the directory's own files; no text: 75%.
uint64_t spill_limit(const std::filesystem::path& directory, const std::optional<std::string>& text,
                     const io::SystemCalls& calls = io::system_calls());

void mark_spill_used(const std::filesystem::path& file);

}  // namespace sluice
