#include <gtest/gtest.h>

#include <csignal>

#include "launch/cluster/endings.h"

namespace tarantella::launch {
namespace {

class AnEnding : public testing::Test {
 protected:
  static Clock::time_point at(double seconds) { return Clock::time_point() + from_seconds(seconds); }

  Endings endings_;
};

TEST_F(AnEnding, WithoutFailureIsGood) {
  endings_.ended(0, {}, at(0));
  EXPECT_FALSE(endings_.failed());
  EXPECT_EQ(endings_.verdict(0).code, 0);
}

TEST_F(AnEnding, IsThatOfTheFirstHostThatFailed) {
  endings_.ended(2, {.code = 3, .words = "first"}, at(0));
  endings_.ended(1, {.code = 4}, at(0));
  EXPECT_EQ(endings_.verdict(0).words, "first");
  EXPECT_EQ(endings_.end_others_at(), at(1)) << "the master may be printing the same error";
  endings_.ended(0, {}, at(0.5));
  EXPECT_EQ(endings_.end_others_at(), at(0));
}

TEST_F(AnEnding, IsNotThatOfAHostThatLostAnother) {
  endings_.ended(1, {.code = 86, .words = "lost"}, at(0));
  EXPECT_EQ(endings_.verdict(0).words, "lost");
  EXPECT_EQ(endings_.end_others_at(), at(5));
  endings_.ended(0, {.code = 3, .words = "cause"}, at(1));
  EXPECT_EQ(endings_.verdict(0).words, "cause");
  EXPECT_EQ(endings_.end_others_at(), at(0));
}

TEST_F(AnEnding, IsThatOfTheMasterIfAllFailAlike) {
  endings_.ended(1, {.code = 1, .words = "a traceback"}, at(0));
  endings_.ended(0, {.code = 1, .words = "the master"}, at(1));
  EXPECT_EQ(endings_.verdict(0).words, "the master");
}

TEST_F(AnEnding, ALostHostIsACause) {
  endings_.ended(0, {.code = 86, .words = "lost"}, at(0));
  endings_.lost(1, "host gone", at(1));
  EXPECT_EQ(endings_.end_others_at(), at(0));
  EXPECT_EQ(endings_.verdict(0).words, "tarantella: host gone\n");
  EXPECT_EQ(endings_.verdict(0).code, 1);
}

TEST_F(AnEnding, BySignalIsNotAFailureOfRanks) {
  endings_.ended(0, {.code = 143, .signal = SIGTERM}, at(0));
  EXPECT_EQ(endings_.verdict(SIGTERM).signal, SIGTERM);
  endings_.lost(1, "host gone", at(1));
  EXPECT_EQ(endings_.verdict(SIGTERM).signal, SIGTERM);
  endings_.ended(2, {.code = 9, .words = "own"}, at(1));
  EXPECT_EQ(endings_.verdict(0).code, 1);
}

}  // namespace
}  // namespace tarantella::launch
