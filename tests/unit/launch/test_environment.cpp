#include <gtest/gtest.h>

#include "launch/environment.h"

namespace tarantella::launch {
namespace {

Placement placement_of(int ranks) {
  Placement placement;
  placement.ranks = ranks;
  placement.cores.assign(static_cast<size_t>(ranks), {{0, 1, 2, 3}, 2});
  return placement;
}

TEST(Environment, JobIdsAreRandom) {
  const auto id = new_job_id();
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id.value().size(), 32u);
  EXPECT_EQ(id.value().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(id.value(), new_job_id().value());
}

TEST(Environment, CoresOfARankSetItsThreads) {
  EXPECT_EQ(additions_for(1, placement_of(2), {}, "id", "", {}).at("OMP_NUM_THREADS"), "2");
  EXPECT_FALSE(additions_for(1, placement_of(2), {}, "id", "", {{"OMP_NUM_THREADS", "9"}})
                   .contains("OMP_NUM_THREADS"));
  Placement unbound;
  EXPECT_FALSE(additions_for(0, unbound, {}, "id", "", {}).contains("OMP_NUM_THREADS"));
}

TEST(Environment, ARankSeesItsGpuOrThoseOfAllRanks) {
  Placement placement = placement_of(2);
  Options options;
  const auto visible = [&](int rank) {
    return additions_for(rank, placement, options, "id", "", {}).at("CUDA_VISIBLE_DEVICES");
  };
  EXPECT_EQ(visible(1), "-1");
  placement.gpus = {"GPU-b", "GPU-a"};
  EXPECT_EQ(visible(1), "GPU-a");
  options.all_gpus = true;
  EXPECT_EQ(visible(0), "GPU-b,GPU-a");
  EXPECT_EQ(visible(1), "GPU-b,GPU-a");
}

TEST(Environment, OwnFolderIsFirstInPathOnce) {
  const auto path = [](const Environment& user) {
    const Additions added = additions_for(0, Placement(), {}, "id", "/own", user);
    return added.contains("PATH") ? added.at("PATH") : "unchanged";
  };
  EXPECT_EQ(path({{"PATH", "/a:/b"}}), "/own:/a:/b");
  EXPECT_EQ(path({{"PATH", "/own:/b"}}), "unchanged");
  EXPECT_EQ(path({{"PATH", "/own"}}), "unchanged");
  EXPECT_EQ(path({{"PATH", "/ownership:/b"}}), "/own:/ownership:/b");
  EXPECT_EQ(path({}), "/own:/usr/local/bin:/usr/bin:/bin");
}

TEST(Environment, TheTimelineReachesEveryRank) {
  Options options;
  EXPECT_FALSE(additions_for(1, placement_of(2), options, "id", "", {}).contains("TNT_TIMELINE"));
  options.timeline = "t.json";
  EXPECT_EQ(additions_for(1, placement_of(2), options, "id", "", {}).at("TNT_TIMELINE"), "t.json");
}

TEST(Environment, OuterJobIsForgottenAndOnlyThat) {
  Environment inside{{"TNT_RANK", "1"},
                     {"TNT_ATTENDANCE_FD", "7"},
                     {"TNT_TIMELINE", "t.json"},
                     {"TNT_TIMELINE_FD", "8"},
                     {"OMP_NUM_THREADS", "4"},
                     {"TNT_LOG_LEVEL", "DEBUG"},
                     {"X", "y"}};
  forget_outer_job(inside);
  EXPECT_EQ(inside, (Environment{{"X", "y"}}));
  Environment outside{{"OMP_NUM_THREADS", "4"}, {"TNT_LOG_LEVEL", "DEBUG"}};
  forget_outer_job(outside);
  EXPECT_EQ(outside.size(), 2u);
}

TEST(Environment, ValuesHaveNoBlanksAroundThem) {
  EXPECT_EQ(stripped({{"X", "\t a b\n"}}, "X"), "a b");
  EXPECT_EQ(stripped({{"X", "  "}}, "X"), "");
  EXPECT_EQ(stripped({}, "X"), "");
}

TEST(Environment, ReadsSwitchesAsPythonDoes) {
  for (const char* value : {"", " ", "0", " 0 ", "\t0\n", "False", "no", " OFF"}) {
    EXPECT_FALSE(is_on({{"X", value}}, "X")) << value;
  }
  for (const char* value : {"1", " 1 ", "on", "TRUE", "yes", "0 0"}) {
    EXPECT_TRUE(is_on({{"X", value}}, "X")) << value;
  }
  EXPECT_FALSE(is_on({}, "X"));
}

TEST(Environment, AdditionsReplaceWhatTheUserHasSet) {
  const auto words = joined({{"A", "old"}, {"B", "b=c"}}, {{"A", "new"}});
  EXPECT_EQ(words, (std::vector<std::string>{"A=new", "B=b=c"}));
}

}  // namespace
}  // namespace tarantella::launch
