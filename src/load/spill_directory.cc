#include "src/load/spill_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>

#include "io/file.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/spill_header.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".spill";
constexpr const char* kUnfinished = ".spill.part";

// A process that fills the file holds its lock.
bool is_locked(const fs::path& path) {
  io::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.is_open() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

uint64_t remove_file(const SpillFileInfo& file) {
  std::error_code error;
  return fs::remove(file.path, error) && !error ? file.bytes : 0;
}

uint64_t free_bytes(const fs::path& directory, const io::SystemCalls& calls) {
  std::error_code error;
  fs::path existing = directory;
  while (!existing.empty() && !fs::exists(existing, error)) existing = existing.parent_path();
  return calls.free_bytes(existing.empty() ? "." : existing.c_str());
}

uint64_t total_bytes(const std::vector<SpillFileInfo>& files) {
  uint64_t total = 0;
  for (const SpillFileInfo& f : files) total += f.bytes;
  return total;
}

}  // namespace

fs::path default_spill_directory() {
  const fs::path cache = user_cache();
  return cache.empty() ? cache : cache / "spill";
}

std::vector<SpillFileInfo> list_spill_files(const fs::path& directory) {
  std::vector<SpillFileInfo> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    struct stat s{};
    bool ours = name.ends_with(kSuffix) || name.ends_with(kUnfinished);
    if (!ours || lstat(entry.path().c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    SpillFileInfo info{
        entry.path(), static_cast<uint64_t>(s.st_blocks) * 512, s.st_atim.tv_sec, {}, {}};
    if (name.ends_with(kSuffix)) {
      if (auto header = read_spill_header(entry.path())) {
        info.model = header->model;
        info.scheme = header->scheme;
      }
    }
    files.push_back(std::move(info));
  }
  std::ranges::sort(files, {}, &SpillFileInfo::last_use);
  return files;
}

uint64_t clear_spill_files(const fs::path& directory) {
  uint64_t removed = 0;
  for (const SpillFileInfo& f : list_spill_files(directory)) {
    if (!is_locked(f.path)) removed += remove_file(f);
  }
  return removed;
}

SpillRoom spill_room(const fs::path& file, uint64_t wanted, uint64_t limit,
                     const io::SystemCalls& calls) {
  fs::path unfinished = file;
  unfinished += ".part";
  SpillRoom room;
  uint64_t used = 0;
  uint64_t disk = free_bytes(file.parent_path(), calls);
  std::vector<SpillFileInfo> others;
  for (SpillFileInfo& f : list_spill_files(file.parent_path())) {
    if (f.path == unfinished) disk += f.bytes;  // emptied first, or another process makes the copy
    if (f.path == file || f.path == unfinished) continue;
    used += f.bytes;
    others.push_back(std::move(f));
  }
  for (SpillFileInfo& f : others) {
    if ((used <= limit && wanted <= limit - used) || wanted > limit) break;
    if (is_locked(f.path)) continue;
    used -= f.bytes;
    disk += f.bytes;
    room.to_remove.push_back(std::move(f));
  }
  // Some of the disk stays free for others.
  room.bytes = std::min({wanted, limit - std::min(limit, used), disk - disk / 20});
  return room;
}

uint64_t spill_limit(const fs::path& directory, const std::optional<std::string>& text,
                     const io::SystemCalls& calls) {
  uint64_t all = free_bytes(directory, calls) + total_bytes(list_spill_files(directory));
  return parse_size("--spill-limit", text.value_or("75%"), all);
}

void mark_spill_used(const fs::path& file) {
  timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  utimensat(AT_FDCWD, file.c_str(), times, 0);
}

}  // namespace sluice
