// Limits of CPU time that control groups set.
#pragma once

#include <filesystem>
#include <optional>

namespace sluice {

// The least quota of the process's control group and of those around it [CPUs]; nullopt: none has
// one.
std::optional<double> cpu_quota(const std::filesystem::path& proc = "/proc",
                                const std::filesystem::path& cgroup = "/sys/fs/cgroup");

}  // namespace sluice
