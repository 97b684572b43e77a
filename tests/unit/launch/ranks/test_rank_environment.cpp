#include <gtest/gtest.h>

#include "launch/ranks/rank_environment.h"

namespace tarantella::launch {
namespace {

Placement placement_of(int ranks) {
  Placement placement;
  placement.ranks = ranks;
  placement.cores.assign(static_cast<size_t>(ranks), {{0, 1, 2, 3}, 2});
  return placement;
}

TEST(RankEnvironment, CoresOfARankSetItsThreads) {
  EXPECT_EQ(overrides_for(1, placement_of(2), {}, "id", "", {}).at("OMP_NUM_THREADS"), "2");
  EXPECT_FALSE(overrides_for(1, placement_of(2), {}, "id", "", {{"OMP_NUM_THREADS", "9"}})
                   .contains("OMP_NUM_THREADS"));
  Placement unbound;
  EXPECT_FALSE(overrides_for(0, unbound, {}, "id", "", {}).contains("OMP_NUM_THREADS"));
}

TEST(RankEnvironment, ARankSeesItsGpuOrThoseOfAllRanks) {
  Placement placement = placement_of(2);
  Options options;
  const auto visible = [&](int rank) {
    return overrides_for(rank, placement, options, "id", "", {}).at("CUDA_VISIBLE_DEVICES");
  };
  EXPECT_EQ(visible(1), "-1");
  placement.gpus = {"GPU-b", "GPU-a"};
  EXPECT_EQ(visible(1), "GPU-a");
  options.all_gpus = true;
  EXPECT_EQ(visible(0), "GPU-b,GPU-a");
  EXPECT_EQ(visible(1), "GPU-b,GPU-a");
}

TEST(RankEnvironment, OwnFolderIsFirstInPathOnce) {
  const auto path = [](const Environment& environment) {
    const EnvironmentOverrides overrides = overrides_for(0, Placement(), {}, "id", "/own", environment);
    return overrides.contains("PATH") ? overrides.at("PATH") : "unchanged";
  };
  EXPECT_EQ(path({{"PATH", "/a:/b"}}), "/own:/a:/b");
  EXPECT_EQ(path({{"PATH", "/own:/b"}}), "unchanged");
  EXPECT_EQ(path({{"PATH", "/own"}}), "unchanged");
  EXPECT_EQ(path({{"PATH", "/ownership:/b"}}), "/own:/ownership:/b");
  EXPECT_EQ(path({}), "/own:/usr/local/bin:/usr/bin:/bin");
}

TEST(RankEnvironment, TheTimelineReachesEveryRank) {
  Options options;
  EXPECT_FALSE(overrides_for(1, placement_of(2), options, "id", "", {}).contains("TNT_TIMELINE"));
  options.timeline = "t.json";
  EXPECT_EQ(overrides_for(1, placement_of(2), options, "id", "", {}).at("TNT_TIMELINE"), "t.json");
}

}  // namespace
}  // namespace tarantella::launch
