#include <gtest/gtest.h>

#include "launch/dry_run.h"
#include "launch/plan.h"

namespace tarantella::launch {
namespace {

using runtime::Gpus;

Options with(std::optional<int> ranks, bool no_gpu = false) {
  Options options;
  options.ranks = ranks;
  options.no_gpu = no_gpu;
  return options;
}

const Gpus kNoDriver{};
const Gpus kDriverOnly{.driver = true, .ids = {}};
const Gpus kTwo{.driver = true, .ids = {"0", "1"}};

TEST(Plan, OneRankAGpu) {
  const Plan plan = plan_devices(with({}), kTwo);
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.gpus, (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(Plan, FewerRanksThanGpus) {
  const Plan plan = plan_devices(with(1), kTwo);
  EXPECT_EQ(plan.gpus, std::vector<std::string>{"0"});
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(Plan, MoreRanksThanGpusRunOnTheCpu) {
  const Plan plan = plan_devices(with(3), kTwo);
  EXPECT_EQ(plan.ranks, 3);
  EXPECT_TRUE(plan.gpus.empty());
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_NE(plan.warnings[0].find("2 GPUs for 3 ranks"), std::string::npos);
}

TEST(Plan, NoWarningWhereTheCpuIsWhatTheUserWants) {
  EXPECT_TRUE(plan_devices(with(3, true), kTwo).warnings.empty());
  EXPECT_TRUE(plan_devices(with({}, true), kDriverOnly).warnings.empty());
  EXPECT_TRUE(plan_devices(with({}), kNoDriver).warnings.empty());
  EXPECT_TRUE(plan_devices(with(4), kNoDriver).warnings.empty());
  EXPECT_TRUE(
      plan_devices(with(4), Gpus{.driver = true, .hidden_by_user = true, .ids = {}}).warnings.empty());
  EXPECT_EQ(plan_devices(with({}), kDriverOnly).warnings.size(), 1u);
}

TEST(Plan, OneRankIsNotBound) {
  Plan plan = plan_devices(with(1), kNoDriver);
  plan_cores(plan);
  EXPECT_TRUE(plan.cores.empty());
  plan.ranks = 2;
  plan_cores(plan);
  EXPECT_EQ(plan.cores.size(), 2u);
}

TEST(DryRun, Ranges) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

}  // namespace
}  // namespace tarantella::launch
