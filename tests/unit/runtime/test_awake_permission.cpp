#include "runtime/awake/permission.h"
#include "unit/runtime/root.h"

namespace tarantella::runtime {
namespace {

class Permission : public Root {
 protected:
  void SetUp() override {
    Root::SetUp();
    siblings(3, "3");
  }
  void siblings(int cpu, const std::string& list) {
    put(text("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"), list + "\n");
  }
  /// Why not; empty if permitted.
  std::string reason(const std::vector<int>& cpus) { return permit_awake(cpus, path_).message(); }
};

TEST_F(Permission, IsGivenWithoutAQuota) {
  EXPECT_EQ(reason({3}), "");
  put("/proc/self/cgroup", "4:cpu,cpuacct:/a\n1:name=systemd:/\n0::/job/step\n");
  put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/elsewhere/cpu.max", "1000 100000\n");
  EXPECT_EQ(reason({3}), "");
}

TEST_F(Permission, IsRefusedForAUnifiedQuotaAtAnyLevel) {
  put("/proc/self/cgroup", "0::/job/step\n");
  for (const char* folder :
       {"/sys/fs/cgroup/job/step", "/sys/fs/cgroup/job", "/sys/fs/cgroup", "/sys/fs/cgroup/unified/job"}) {
    const std::string file = text(folder, "/cpu.max");
    put(file, "150000 100000\n");
    EXPECT_EQ(reason({3}), text("the cgroup has a CPU quota (", path_, file, ")"));
    put(file, "max 100000\n");
    EXPECT_EQ(reason({3}), "");
  }
}

TEST_F(Permission, IsRefusedForAnOldQuotaAtAnyLevel) {
  put("/proc/self/cgroup", "5:memory:/m\n4:cpuacct,cpu:/docker/x\n");
  put("/sys/fs/cgroup/cpu/m/cpu.cfs_quota_us", "5000\n");
  for (const char* folder : {"/docker/x", "/docker", ""}) {  // "": in a container, whose path is the host's
    const std::string file = text("/sys/fs/cgroup/cpu", folder, "/cpu.cfs_quota_us");
    put(file, "50000\n");
    EXPECT_EQ(reason({3}), text("the cgroup has a CPU quota (", path_, file, ")"));
    put(file, "-1\n");
    EXPECT_EQ(reason({3}), "");
  }
}

TEST_F(Permission, NeedsAllHardwareThreadsOfACore) {
  siblings(0, "0-1,6");
  siblings(1, "0-1,6");
  siblings(6, "0-1,6");
  EXPECT_EQ(reason({0, 1, 6, 3}), "");
  EXPECT_EQ(reason({0, 1, 3}), "CPU 6, on the same core as CPU 0, is not this rank's");
  EXPECT_EQ(reason({6}), "CPU 0, on the same core as CPU 6, is not this rank's");
}

TEST_F(Permission, IsRefusedWhereNothingIsKnown) {
  EXPECT_EQ(reason({9}), "the hardware threads beside CPU 9 are not known");
}

}  // namespace
}  // namespace tarantella::runtime
