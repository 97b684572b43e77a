#include "base/status.h"
#include "runtime/memory.h"
#include "unit/runtime/root.h"

namespace tarantella::runtime {
namespace {

class AvailableMemory : public Root {};

TEST_F(AvailableMemory, TakesMemAvailable) {
  put("/proc/meminfo",
      "MemTotal:       1000 kB\nMemFree:        10 kB\nMemAvailable:   500 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(available_memory(path_), 500u * 1024);
}

TEST_F(AvailableMemory, KnowsNoLimitWhereNothingCanBeRead) { EXPECT_EQ(available_memory(path_), UINT64_MAX); }

TEST_F(AvailableMemory, TakesTheTightestLimitOfCgroupVersion2) {
  put("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  put("/proc/self/cgroup", "0::/job/step\n");
  put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  put("/sys/fs/cgroup/job/step/memory.current", "100\n");
  put("/sys/fs/cgroup/job/memory.max", "5000\n");
  put("/sys/fs/cgroup/job/memory.current", "2000\n");
  EXPECT_EQ(available_memory(path_), 3000u);
}

TEST_F(AvailableMemory, DoesNotTakeCachedFilesForUsedMemory) {
  put("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  put("/proc/self/cgroup", "0::/job\n");
  put("/sys/fs/cgroup/job/memory.max", "8000\n");
  put("/sys/fs/cgroup/job/memory.current", "7990\n");
  put("/sys/fs/cgroup/job/memory.stat", "anon 500\ninactive_file 6000\nactive_file 1000\n");
  EXPECT_EQ(available_memory(path_), 7010u);
}

TEST_F(AvailableMemory, TakesTheLimitOfCgroupVersion1) {
  put("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
  put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "700\n");
  put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "900\n");
  EXPECT_EQ(available_memory(path_), 0u);
}

TEST_F(AvailableMemory, TakesTheLimitOfACgroupAtAnyLevel) {
  put("/proc/self/cgroup", "5:blkio,memory:/docker/x\n1:name=systemd:/\n0::/job/step\n");
  for (const char* folder : {"/job/step", "/job", "", "/unified/job", "/memory/docker/x", "/memory/docker",
                             "/memory"}) {  // "/memory": in a container, whose path is the host's
    const std::string limit = text("/sys/fs/cgroup", folder, "/memory.max");
    put(text("/sys/fs/cgroup", folder, "/memory.current"), "2000\n");
    put(limit, "5000\n");
    EXPECT_EQ(available_memory(path_), 3000u) << folder;
    put(limit, "max\n");
    EXPECT_EQ(available_memory(path_), UINT64_MAX) << folder;
  }
  put("/sys/fs/cgroup/elsewhere/memory.max", "1000\n");
  put("/sys/fs/cgroup/elsewhere/memory.current", "0\n");
  EXPECT_EQ(available_memory(path_), UINT64_MAX);
}

TEST(Memory, OfThisMachineIsMoreThanOneMegabyte) { EXPECT_GT(available_memory(), 1024u * 1024); }

}  // namespace
}  // namespace tarantella::runtime
