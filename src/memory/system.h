// Memory as the system reports it: of the machine, of this process's cgroup (v1 and v2), of this
// process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

// Roots of the files that are read; tests point it at a made-up tree.
struct SystemPaths {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroup = "/sys/fs/cgroup";
};

struct CgroupMemory {
  std::string path;               // directory that the tightest limit was read from
  std::optional<uint64_t> limit;  // bytes, memory.high counts too; none: unlimited
  uint64_t used = 0;              // charged, without what can be reclaimed
  // Peak of everything charged to the process's group; none where others share the group.
  std::optional<uint64_t> peak;
};

// The process's memory cgroup and its ancestors; the one that leaves least. nullopt: no memory
// controller is visible.
std::optional<CgroupMemory> cgroup_memory(const SystemPaths& paths = {});

uint64_t mem_available(const SystemPaths& paths = {});     // MemAvailable; 0 when unknown
uint64_t process_rss(const SystemPaths& paths = {});       // VmRSS
uint64_t process_peak_rss(const SystemPaths& paths = {});  // VmHWM

// Maps all of the program's code into the process's memory. Otherwise pages come as they are first
// used, in numbers that the kernel chooses.
void map_program_code();

// The budget when none is given: what is really free, less a reserve for everybody else.
struct FreeMemory {
  uint64_t budget = 0;     // bytes for this whole process
  uint64_t free = 0;       // min(MemAvailable, cgroup limit - used)
  uint64_t own = 0;        // memory of this process already, which it may keep
  uint64_t reserve = 0;    // 5 % of free, 64 MiB to 1 GiB
  std::string limited_by;  // "MemAvailable" or the cgroup's path
};
FreeMemory free_memory(const SystemPaths& paths = {});

}  // namespace sluice
