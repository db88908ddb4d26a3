// The directory of spill files: one for each checkpoint, scheme and rank. Shared by processes; what
// one removes, another that has it open goes on reading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

// $XDG_CACHE_HOME/sluice/spill, or ~/.cache/sluice/spill; empty when there is neither.
std::filesystem::path default_spill_directory();

struct SpillFileInfo {
  std::filesystem::path path;
  uint64_t bytes = 0;    // on disk
  int64_t last_use = 0;  // seconds since 1970
  std::string model;     // whose weights it holds; empty: unreadable, or not finished
  std::string scheme;
};

// The least recently used first, unfinished ones too. A directory that does not exist is empty.
std::vector<SpillFileInfo> list_spill_files(const std::filesystem::path& directory);

// Bytes removed. Unfinished files that a running process writes stay.
uint64_t clear_spill_files(const std::filesystem::path& directory);

// Removes the least recently used until `wanted` more bytes make no more than `limit`; files named
// `keep` count for nothing, because they are about to be replaced. The bytes that there is then
// room for: fewer than wanted when even that is not enough.
uint64_t make_spill_room(const std::filesystem::path& directory, const std::filesystem::path& keep,
                         uint64_t wanted, uint64_t limit);

// "20GiB", or "50%" of what the file system has free with the directory's own files; no text: 75%.
uint64_t spill_limit(const std::filesystem::path& directory,
                     const std::optional<std::string>& text);

void mark_spill_used(const std::filesystem::path& file);

}  // namespace sluice
