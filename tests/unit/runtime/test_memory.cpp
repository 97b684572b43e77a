#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/memory.h"

namespace tarantella::runtime {
namespace {

/// A folder that replaces "/".
class AvailableMemory : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tnt-root-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void put(const std::string& file, const std::string& content) {
    const std::filesystem::path full = path_ + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << content;
  }

  std::string path_;
};

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

TEST(Memory, OfThisMachineIsMoreThanOneMegabyte) { EXPECT_GT(available_memory(), 1024u * 1024); }

}  // namespace
}  // namespace tarantella::runtime
