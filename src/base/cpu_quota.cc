#include "src/base/cpu_quota.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/strings.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct Group {
  fs::path root;  // of the hierarchy
  fs::path path;  // below it
};

// /proc/self/cgroup has lines "0::/a/b" (v2) and "4:cpu,cpuacct:/a/b" (v1). The roots count without
// it, too.
std::vector<Group> groups_of_process(const fs::path& proc, const fs::path& cgroup) {
  std::vector<Group> groups{{cgroup, {}}};
  std::ifstream in(proc / "self/cgroup");
  for (std::string line; std::getline(in, line);) {
    std::string_view rest = line;
    take_until(rest, ':');
    const std::string_view controllers = take_until(rest, ':');
    const fs::path path = fs::path(rest).relative_path();
    if (controllers.empty()) groups.push_back({cgroup, path});
    const std::vector<std::string_view> names = split_text(controllers, ',');
    if (std::ranges::find(names, "cpu") != names.end()) groups.push_back({cgroup / "cpu", path});
  }
  return groups;
}

std::optional<double> quota_in(const fs::path& directory) {
  std::string quota, period;
  // v2: "max 100000" or "150000 100000", microseconds of CPU time in each period.
  if (!(std::ifstream(directory / "cpu.max") >> quota >> period)) {
    std::ifstream(directory / "cpu.cfs_quota_us") >> quota;  // v1: -1 is none
    std::ifstream(directory / "cpu.cfs_period_us") >> period;
  }
  const auto time = parse_number<int64_t>(quota), whole = parse_number<int64_t>(period);
  if (!time || !whole || *time <= 0 || *whole <= 0) return std::nullopt;
  return static_cast<double>(*time) / static_cast<double>(*whole);
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& proc, const fs::path& cgroup) {
  std::optional<double> least;
  for (auto [root, path] : groups_of_process(proc, cgroup)) {
    // A container's group may name directories that are not mounted: its root is then this group.
    for (bool more = true; more; path = path.parent_path()) {
      const std::optional<double> quota = quota_in(root / path);
      if (quota) least = std::min(*quota, least.value_or(*quota));
      more = !path.empty();
    }
  }
  return least;
}

}  // namespace sluice
