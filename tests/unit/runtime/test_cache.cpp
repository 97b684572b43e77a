#include <gtest/gtest.h>

#include <string>

#include "runtime/cache.h"
#include "unit/runtime/root.h"

namespace tarantella::runtime {
namespace {

class LastLevelCache : public Root {
 protected:
  void put(int cpu, int index, const std::string& sharing) {
    const std::string cache = "/cache/index" + std::to_string(index) + "/shared_cpu_list";
    Root::put("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + cache, sharing + "\n");
  }
  uint64_t of(const std::vector<size_t>& cpus) const {
    CpuMask mask{};
    for (const size_t cpu : cpus) mask.add(cpu);
    return last_level_cache(mask, path_);
  }
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
