#include "src/memory/system.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "src/base/units.h"

// The linker's: where the program begins, and where its code ends.
extern "C" const char __executable_start;  // NOLINT(bugprone-reserved-identifier)
extern "C" const char etext;

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The number after "NAME:" in a file such as /proc/meminfo, in bytes (the file says kB).
uint64_t kilobytes_field(const fs::path& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * KiB;
    }
  }
  return 0;
}

// A file that holds one number; nullopt for "max", for v1's "no limit" (near 2^63), or when it is
// not there.
std::optional<uint64_t> number_in(const fs::path& file) {
  std::string text;
  if (!(std::ifstream(file) >> text) || text == "max") return std::nullopt;
  uint64_t value = std::strtoull(text.c_str(), nullptr, 10);
  if (value >= uint64_t{1} << 62) return std::nullopt;
  return value;
}

// Bytes that the kernel takes back before a group runs into its limit: the page cache of files on
// both lists (a file that was read twice is "active", and goes as well), and, as for MemAvailable,
// half of the slab that it calls reclaimable. Pages of tmpfs are on neither list. v1 reports no
// slab, and counts descendants in fields of their own.
uint64_t reclaimable(const fs::path& stat, std::string_view prefix) {
  std::ifstream in(stat);
  uint64_t sum = 0;
  std::string key;
  for (uint64_t value = 0; in >> key >> value;) {
    if (!key.starts_with(prefix)) continue;
    std::string_view field = std::string_view(key).substr(prefix.size());
    if (field == "inactive_file" || field == "active_file") sum += value;
    if (field == "slab_reclaimable") sum += value / 2;
  }
  return sum;
}

// Returns whether a group holds this process and no other.
bool is_own_group(const fs::path& group, const fs::path& proc) {
  std::ifstream status(proc / "self/status");
  std::string line;
  while (std::getline(status, line) && !line.starts_with("Tgid:")) {
  }
  if (!line.starts_with("Tgid:")) return false;
  const uint64_t self = std::strtoull(line.c_str() + 5, nullptr, 10);
  std::ifstream in(group / "cgroup.procs");
  uint64_t count = 0;
  for (uint64_t pid = 0; in >> pid; ++count) {
    if (pid != self) return false;
  }
  return count > 0;
}

struct Controller {
  fs::path root;      // of the hierarchy
  std::string group;  // this process's, below root
  const char* limit;
  const char* soft_limit;  // above it the kernel throttles; none: null
  const char* usage;
  const char* peak;
  const char* prefix;  // of the fields of memory.stat that count descendants, too
};

// /proc/self/cgroup has lines "0::/a/b" (v2) and "4:memory:/a/b" (v1). A hybrid system has both;
// the one with the memory controller counts.
std::optional<Controller> find_controller(const SystemPaths& paths) {
  std::ifstream in(paths.proc / "self/cgroup");
  std::optional<Controller> found;
  for (std::string line; std::getline(in, line);) {
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    std::stringstream list(controllers);
    for (std::string c; std::getline(list, c, ',');) {
      if (c == "memory") {
        return Controller{paths.cgroup / "memory",
                          group,
                          "memory.limit_in_bytes",
                          nullptr,
                          "memory.usage_in_bytes",
                          "memory.max_usage_in_bytes",
                          "total_"};
      }
    }
    if (controllers.empty() && fs::exists(paths.cgroup / "cgroup.controllers")) {
      found = Controller{paths.cgroup,  group, "memory.max", "memory.high", "memory.current",
                         "memory.peak", ""};
    }
  }
  return found;
}

}  // namespace

std::optional<CgroupMemory> cgroup_memory(const SystemPaths& paths) {
  std::optional<Controller> c = find_controller(paths);
  if (!c) return std::nullopt;
  // Inside a container the group's path may name a directory that is not mounted: its root is then
  // this group.
  fs::path group = fs::path(c->group).relative_path();
  if (!fs::exists(c->root / group / c->usage) && fs::exists(c->root / c->usage)) group.clear();
  if (!fs::exists(c->root / group / c->usage) && !fs::exists(c->root / group / c->limit))
    return std::nullopt;

  CgroupMemory result;
  result.path = (c->root / group).string();
  if (is_own_group(c->root / group, paths.proc)) result.peak = number_in(c->root / group / c->peak);
  uint64_t least = UINT64_MAX;
  while (true) {
    fs::path dir = c->root / group;
    std::optional<uint64_t> limit = number_in(dir / c->limit);
    std::optional<uint64_t> soft = c->soft_limit ? number_in(dir / c->soft_limit) : std::nullopt;
    if (soft && (!limit || *soft < *limit)) limit = soft;
    uint64_t charged = number_in(dir / c->usage).value_or(0);
    uint64_t used = charged - std::min(charged, reclaimable(dir / "memory.stat", c->prefix));
    if (limit && *limit - std::min(*limit, used) < least) {
      least = *limit - std::min(*limit, used);
      result.path = dir.string();
      result.limit = limit;
      result.used = used;
    }
    if (group.empty()) break;
    group = group.parent_path();
  }
  return result;
}

uint64_t mem_available(const SystemPaths& paths) {
  return kilobytes_field(paths.proc / "meminfo", "MemAvailable");
}
uint64_t process_rss(const SystemPaths& paths) {
  return kilobytes_field(paths.proc / "self/status", "VmRSS");
}
uint64_t process_peak_rss(const SystemPaths& paths) {
  return kilobytes_field(paths.proc / "self/status", "VmHWM");
}

void map_program_code() {
  constexpr uint64_t kPage = 4096;
  auto begin = reinterpret_cast<uint64_t>(&__executable_start);
  auto end = reinterpret_cast<uint64_t>(&etext);
  for (uint64_t at = begin; at < end; at += kPage)
    (void)*reinterpret_cast<const volatile char*>(at);  // NOLINT(performance-no-int-to-ptr)
}

FreeMemory free_memory(const SystemPaths& paths) {
  FreeMemory result;
  result.free = mem_available(paths);
  result.limited_by = "MemAvailable";
  if (auto cgroup = cgroup_memory(paths); cgroup && cgroup->limit) {
    uint64_t left = *cgroup->limit - std::min(*cgroup->limit, cgroup->used);
    if (left < result.free) {
      result.free = left;
      result.limited_by = cgroup->path;
    }
  }
  result.own = process_rss(paths);
  result.reserve = std::clamp(result.free / 20, 64 * MiB, GiB);
  result.budget = result.own + result.free - std::min(result.free, result.reserve);
  return result;
}

}  // namespace sluice
