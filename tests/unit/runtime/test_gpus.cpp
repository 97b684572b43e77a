#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/topology/gpus.h"

namespace tarantella::runtime {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::string>;

class GpusTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpus_test_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    proc_ = name;
  }
  void TearDown() override { fs::remove_all(proc_); }

  void install(int gpus) {
    fs::create_directories(proc_ / "driver/nvidia/gpus");
    std::ofstream(proc_ / "driver/nvidia/version") << "NVRM";
    for (int gpu = 0; gpu < gpus; ++gpu)
      fs::create_directory(proc_ / "driver/nvidia/gpus" / std::to_string(gpu));
  }
  Ids visible(const std::string& value) { return find_gpus(proc_, value).ids; }

  fs::path proc_;
};

TEST_F(GpusTest, FindsNoDriver) {
  EXPECT_FALSE(find_gpus(proc_, {}).driver);
  EXPECT_FALSE(find_gpus("/no/such/proc", "0").driver);
}

TEST_F(GpusTest, FindsADriverWithoutGpus) {
  install(0);
  const Gpus gpus = find_gpus(proc_, {});
  EXPECT_TRUE(gpus.driver);
  EXPECT_FALSE(gpus.hidden_by_user);
  EXPECT_TRUE(gpus.ids.empty());
  EXPECT_TRUE(visible("0").empty());
}

TEST_F(GpusTest, TakesAllGpusOrThoseThatTheUserNames) {
  install(3);
  EXPECT_EQ(find_gpus(proc_, {}).ids, (Ids{"0", "1", "2"}));
  EXPECT_EQ(visible("2,0"), (Ids{"2", "0"}));
  EXPECT_EQ(visible(" 1 , 2 "), (Ids{"1", "2"}));
  EXPECT_EQ(visible("GPU-1f,MIG-a/1"), (Ids{"GPU-1f", "MIG-a/1"}));
}

TEST_F(GpusTest, TheFirstEntryThatNamesNoGpuEndsTheList) {
  install(3);
  EXPECT_EQ(visible("1,3,0"), (Ids{"1"}));
  EXPECT_EQ(visible("1,-1,0"), (Ids{"1"}));
  EXPECT_EQ(visible("1,1"), (Ids{"1"}));
  for (const char* none : {"", "-1", "none", ",0", "0x1"}) {
    EXPECT_TRUE(visible(none).empty()) << none;
    EXPECT_TRUE(find_gpus(proc_, none).hidden_by_user) << none;
  }
}

}  // namespace
}  // namespace tarantella::runtime
