#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/cache.h"

namespace tarantella::runtime {
namespace {

/// A folder that replaces "/".
class LastLevelCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tnt-root-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void put(int cpu, int index, const std::string& sharing) {
    const std::filesystem::path folder =
        path_ + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "shared_cpu_list") << sharing << "\n";
  }
  uint64_t of(const std::vector<size_t>& cpus) const {
    CpuMask mask{};
    for (const size_t cpu : cpus) mask.add(cpu);
    return last_level_cache(mask, path_);
  }

  std::string path_;
};

TEST_F(LastLevelCache, IsOneNumberForAllThatShareIt) {
  for (const int cpu : {0, 1, 2, 3, 68}) {
    put(cpu, 0, std::to_string(cpu));
    put(cpu, 1, std::to_string(cpu));
    put(cpu, 2, cpu < 2 ? "0-1" : "2-3,66,68");
  }
  EXPECT_EQ(of({0}), of({1}));
  EXPECT_EQ(of({2}), of({3}));
  EXPECT_EQ(of({3, 0}), of({1}));  // the lowest one decides
  EXPECT_EQ(of({68}), of({2}));
  EXPECT_NE(of({1}), of({2}));
  EXPECT_NE(of({1}), 0u);
}

TEST_F(LastLevelCache, IsUnknownWhereTheKernelDoesNotSay) {
  EXPECT_EQ(of({3}), 0u);
  EXPECT_EQ(of({}), 0u);
  put(3, 0, "?");
  EXPECT_EQ(of({3}), 0u);
}

}  // namespace
}  // namespace tarantella::runtime
