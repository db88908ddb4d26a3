#include "src/memory/system.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "src/base/units.h"
#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct FakeSystem {
  test::TempDir dir;
  SystemPaths paths{dir / "proc", dir / "cgroup"};
  FakeSystem() {
    fs::create_directories(paths.proc / "self");
    test::write_file(paths.proc / "meminfo", "MemTotal: 8388608 kB\nMemAvailable:    4194304 kB\n");
    test::write_file(paths.proc / "self/status",
                     "Name: x\nTgid:\t42\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\n");
  }
  void group(const fs::path& path,
             std::initializer_list<std::pair<const char*, std::string>> files) {
    fs::create_directories(paths.cgroup / path);
    for (const auto& [name, text] : files) test::write_file(paths.cgroup / path / name, text);
  }
};

TEST(System, WithoutCgroupMemAvailableCounts) {
  FakeSystem s;
  FreeMemory free = free_memory(s.paths);
  EXPECT_EQ(free.free, 4 * GiB);
  EXPECT_EQ(free.limited_by, "MemAvailable");
  EXPECT_EQ(free.own, 10 * MiB);
  EXPECT_EQ(free.budget, 10 * MiB + 4 * GiB - free.reserve);
  EXPECT_EQ(process_peak_rss(s.paths), 20 * MiB);
}

TEST(System, VersionTwoTakesTheTightestAncestor) {
  FakeSystem s;
  test::write_file(s.paths.proc / "self/cgroup", "0::/a/b\n");
  s.group("", {{"cgroup.controllers", "cpu memory"}});
  s.group("a", {{"memory.max", "1073741824"},
                {"memory.current", "209715200"},
                {"memory.stat",
                 "anon 1\ninactive_file 52428800\nactive_file 41943040\n"
                 "slab_reclaimable 20971520\nslab_unreclaimable 1048576\n"}});
  s.group("a/b", {{"memory.max", "max"},
                  {"memory.current", "104857600"},
                  {"memory.peak", "157286400"},
                  {"cgroup.procs", "42\n"},
                  {"memory.stat", "inactive_file 0\n"}});
  auto cgroup = cgroup_memory(s.paths);
  ASSERT_TRUE(cgroup);
  EXPECT_EQ(cgroup->limit, GiB);
  // Page cache, read once or more often, and half of the slab can be had back.
  EXPECT_EQ(cgroup->used, 100 * MiB);
  EXPECT_EQ(cgroup->peak, 150 * MiB);
  EXPECT_EQ(free_memory(s.paths).free, GiB - 100 * MiB);
  // Above memory.high a process is slowed down until it gives something back.
  s.group("a", {{"memory.high", "536870912"}});
  EXPECT_EQ(cgroup_memory(s.paths)->limit, 512 * MiB);
}

TEST(System, VersionOneInAHybridHierarchy) {
  FakeSystem s;
  test::write_file(s.paths.proc / "self/cgroup", "4:memory:/job\n1:cpu:/\n0::/job\n");
  s.group("memory",
          {{"memory.limit_in_bytes", "9223372036854771712"}, {"memory.usage_in_bytes", "0"}});
  s.group("memory/job", {{"memory.limit_in_bytes", "536870912"},
                         {"memory.usage_in_bytes", "1048576"},
                         {"memory.max_usage_in_bytes", "2097152"},
                         {"cgroup.procs", "42\n"},
                         {"memory.stat",
                          "inactive_file 9\ntotal_inactive_file 4096\n"
                          "active_file 9\ntotal_active_file 1044480\n"}});
  auto cgroup = cgroup_memory(s.paths);
  ASSERT_TRUE(cgroup);
  EXPECT_EQ(cgroup->limit, 512 * MiB);
  EXPECT_EQ(cgroup->used, 0u);
  EXPECT_EQ(cgroup->peak, 2 * MiB);
  EXPECT_EQ(free_memory(s.paths).free, 512 * MiB);
}

TEST(System, APeakIsOfAGroupThatNobodyElseIsIn) {
  FakeSystem s;
  test::write_file(s.paths.proc / "self/cgroup", "0::/a\n");
  s.group("", {{"cgroup.controllers", "memory"}});
  for (const auto& [procs, own] :
       {std::pair{"42\n", true}, {"7\n42\n", false}, {"42\n420\n", false}, {"", false}}) {
    s.group("a", {{"memory.current", "1"}, {"memory.peak", "4096"}, {"cgroup.procs", procs}});
    EXPECT_EQ(cgroup_memory(s.paths)->peak, own ? std::optional<uint64_t>(4096) : std::nullopt)
        << procs;
  }
}

// The path in a container's /proc/self/cgroup is the host's, but only this group is mounted.
TEST(System, ContainerThatSeesOnlyItsOwnGroup) {
  FakeSystem s;
  test::write_file(s.paths.proc / "self/cgroup", "0::/docker/0123\n");
  s.group("",
          {{"cgroup.controllers", "memory"}, {"memory.max", "268435456"}, {"memory.current", "0"}});
  auto cgroup = cgroup_memory(s.paths);
  ASSERT_TRUE(cgroup);
  EXPECT_EQ(cgroup->limit, 256 * MiB);
}

TEST(System, ThisProcessIsMeasured) {
  EXPECT_GT(mem_available(), 0u);
  EXPECT_GT(process_rss(), 0u);
  EXPECT_GE(process_peak_rss(), process_rss() / 2);
}

}  // namespace
}  // namespace sluice
