#include <gtest/gtest.h>

#include "launch/placement.h"

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

TEST(Placement, StartsOneRankPerGpu) {
  const Placement placement = place_on_gpus(with({}), kTwo);
  EXPECT_EQ(placement.ranks, 2);
  EXPECT_EQ(placement.gpus, (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(placement.warnings.empty());
}

TEST(Placement, FewerRanksThanGpusTakeTheFirstGpus) {
  const Placement placement = place_on_gpus(with(1), kTwo);
  EXPECT_EQ(placement.gpus, std::vector<std::string>{"0"});
  EXPECT_TRUE(placement.warnings.empty());
}

TEST(Placement, MoreRanksThanGpusRunOnTheCpu) {
  const Placement placement = place_on_gpus(with(3), kTwo);
  EXPECT_EQ(placement.ranks, 3);
  EXPECT_TRUE(placement.gpus.empty());
  ASSERT_EQ(placement.warnings.size(), 1u);
  EXPECT_NE(placement.warnings[0].find("2 GPUs for 3 ranks"), std::string::npos);
}

TEST(Placement, WarnsOnlyIfTheUserMayExpectGpus) {
  EXPECT_TRUE(place_on_gpus(with(3, true), kTwo).warnings.empty());
  EXPECT_TRUE(place_on_gpus(with({}, true), kDriverOnly).warnings.empty());
  EXPECT_TRUE(place_on_gpus(with({}), kNoDriver).warnings.empty());
  EXPECT_TRUE(place_on_gpus(with(4), kNoDriver).warnings.empty());
  EXPECT_TRUE(
      place_on_gpus(with(4), Gpus{.driver = true, .hidden_by_user = true, .ids = {}}).warnings.empty());
  EXPECT_EQ(place_on_gpus(with({}), kDriverOnly).warnings.size(), 1u);
}

TEST(Placement, OneRankIsNotBound) {
  Placement placement = place_on_gpus(with(1), kNoDriver);
  place_on_cores(placement);
  EXPECT_TRUE(placement.cores.empty());
  placement.ranks = 2;
  place_on_cores(placement);
  EXPECT_EQ(placement.cores.size(), 2u);
}

}  // namespace
}  // namespace tarantella::launch
