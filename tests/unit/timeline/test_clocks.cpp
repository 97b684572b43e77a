#include <gtest/gtest.h>

#include <cstdint>

#include "timeline/clocks.h"

namespace tarantella::timeline {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(Clocks, AnAnswerBoundsTheDifferenceHoweverLateItLeft) {
  constexpr int64_t kAhead = 40 * kMs;
  for (const int64_t there : {0, 1, 7, 10}) {  // ns after the question left
    const int64_t sent = 1000;
    const ClockOffset found = offset_of(sent + there - kAhead, sent, sent + 10);
    EXPECT_EQ(found.within, 5);
    EXPECT_LE(std::abs(found.by - kAhead), found.within) << there;
    EXPECT_EQ(found.time, sent + 10);
  }
}

TEST(Clocks, AClockBehindHasANegativeDifference) {
  EXPECT_EQ(offset_of(5000, 0, 11).by, -4994);
  EXPECT_EQ(offset_of(5000, 0, 11).within, 6);
}

TEST(Clocks, TheDifferenceChangesEvenlyBetweenStartAndEnd) {
  const ClockDrift clock({1000, 100, 0}, {2000, 200, 0});
  EXPECT_EQ(clock.there(1000), 900);
  EXPECT_EQ(clock.there(1500), 1350);
  EXPECT_EQ(clock.there(2000), 1800);
  EXPECT_EQ(clock.there(500), 400);
  EXPECT_EQ(clock.there(3000), 2800);
}

TEST(Clocks, DaysBetweenTheClocksLoseNoNanosecond) {
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1000 * kMs, kDay = kYear / 365;
  const ClockDrift clock({kYear, kYear / 2, 0}, {kYear + kDay, kYear / 2 + 3 * kMs, 0});
  EXPECT_EQ(clock.there(kYear), kYear / 2);
  EXPECT_EQ(clock.there(kYear + kDay / 3), kYear / 2 + kDay / 3 - kMs);
}

TEST(Clocks, OneComparisonIsEnough) {
  const ClockOffset only{1000, 70, 2};
  EXPECT_EQ(ClockDrift(only, only).there(5000), 4930);
  EXPECT_EQ(ClockDrift().there(5000), 5000);
}

TEST(Clocks, WordsSayTheDifferenceAndHowCertainItIs) {
  const ClockOffset ahead{0, 1'300'000, 200'000}, behind{0, -5'000'250'000, 100'000};
  EXPECT_EQ(ClockDrift(ahead, ahead).words(), "is 1.300 ms ahead, known to within 0.200 ms");
  EXPECT_EQ(ClockDrift(behind, behind).words(), "is 5.000 s behind, known to within 0.100 ms");
  EXPECT_EQ(ClockDrift(ahead, {1, 1'500'000, 100'000}).words(),
            ClockDrift(ahead, ahead).words());  // may be none
  EXPECT_EQ(ClockDrift(ahead, {1, 800'000, 100'000}).words(),
            "is 1.300 ms ahead, known to within 0.200 ms, and has lost 0.500 ms by the end");
}

}  // namespace
}  // namespace tarantella::timeline
