// Quotas of CPU time, read from a directory that looks as those of the kernel do.
#include "src/base/cpu_quota.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/support/temp.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class CpuQuota : public testing::Test {
 protected:
  void put(const fs::path& file, const std::string& text) {
    fs::create_directories((dir_.path() / file).parent_path());
    test::write_file(dir_.path() / file, text);
  }
  std::optional<double> quota() const { return cpu_quota(dir_ / "proc", dir_ / "cgroup"); }

  test::TempDir dir_;
};

TEST_F(CpuQuota, TheLeastOfTheGroupAndThoseAroundItCounts) {
  EXPECT_EQ(quota(), std::nullopt);
  put("proc/self/cgroup", "0::/a/b\n");
  put("cgroup/a/b/cpu.max", "max 100000\n");
  put("cgroup/other/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  put("cgroup/a/b/cpu.max", "350000 100000\n");
  EXPECT_EQ(quota(), 3.5);
  put("cgroup/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(CpuQuota, VersionOneHasAHierarchyForCpus) {
  put("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n");
  put("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  put("cgroup/cpu/m/cpu.cfs_quota_us", "10000\n");
  put("cgroup/cpu/m/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  put("cgroup/cpu/job/cpu.cfs_quota_us", "25000\n");
  put("cgroup/cpu/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, AContainerSeesItsGroupAsTheRoot) {
  put("cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  put("proc/self/cgroup", "0::/docker/not/mounted\n");
  EXPECT_EQ(quota(), 1.5);
  for (const char* text : {"", "1", "x 100000", "100000 0", "99999999999999999999 100000"}) {
    put("cgroup/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice
