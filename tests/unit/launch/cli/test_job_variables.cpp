#include <gtest/gtest.h>

#include "launch/cli/job_variables.h"

namespace tarantella::launch {
namespace {

TEST(JobVariables, JobIdsAreRandom) {
  const auto id = new_job_id();
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id.value().size(), 32u);
  EXPECT_EQ(id.value().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(id.value(), new_job_id().value());
}

TEST(JobVariables, OuterJobIsForgottenAndOnlyThat) {
  Environment inside{{"TNT_RANK", "1"},          {"TNT_RANK_STATUS_FD", "7"},
                     {"TNT_TIMELINE", "t.json"}, {"TNT_SNAPSHOT_FDS", "9,10"},
                     {"TNT_TIMELINE_FD", "8"},   {"OMP_NUM_THREADS", "4"},
                     {"TNT_LOG_LEVEL", "DEBUG"}, {"X", "y"}};
  remove_outer_job_variables(inside);
  EXPECT_EQ(inside, (Environment{{"X", "y"}}));
  Environment outside{{"OMP_NUM_THREADS", "4"}, {"TNT_LOG_LEVEL", "DEBUG"}};
  remove_outer_job_variables(outside);
  EXPECT_EQ(outside.size(), 2u);
}

}  // namespace
}  // namespace tarantella::launch
