#include <gtest/gtest.h>

#include <limits>

#include "base/clock.h"

namespace tarantella {
namespace {

TEST(Deadline, PassesAndNeverHasNegativeTimeLeft) {
  const Deadline past = Deadline::after(-1s);
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.left(), Duration::zero());
  EXPECT_EQ(past.left_ms(), 0);
  const Deadline future = Deadline::after(60s);
  EXPECT_FALSE(future.passed());
  EXPECT_GT(future.left_ms(), 1000);
}

TEST(Deadline, RoundsMillisecondsUpSoThatPollDoesNotSpin) {
  EXPECT_GE(Deadline::after(200us).left_ms() + (Deadline::after(200us).passed() ? 1 : 0), 1);
}

TEST(Seconds, ConvertBothWays) { EXPECT_DOUBLE_EQ(in_seconds(from_seconds(2.5)), 2.5); }

TEST(Seconds, OfAnySizeMakeADeadline) {
  for (const double seconds : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_GT(from_seconds(seconds), std::chrono::hours(24 * 365));
    const Deadline never = Deadline::after(from_seconds(seconds));
    EXPECT_FALSE(never.passed());
    EXPECT_GT(never.left(), std::chrono::hours(24 * 365));
    EXPECT_GT(never.left_ms(), 1'000'000);
  }
  EXPECT_TRUE(Deadline::after(Duration::max()).left() > 1s);
}

}  // namespace
}  // namespace tarantella
