#include <gtest/gtest.h>

#include <csignal>

#include "launch/cluster/host_exits.h"

namespace tarantella::launch {
namespace {

class AnEnding : public testing::Test {
 protected:
  static Clock::time_point at(double seconds) { return Clock::time_point() + from_seconds(seconds); }

  HostExits exits_;
};

TEST_F(AnEnding, WithoutFailureIsGood) {
  exits_.on_exit(0, {}, at(0));
  EXPECT_FALSE(exits_.failed());
  EXPECT_EQ(exits_.result(0).code, 0);
}

TEST_F(AnEnding, IsThatOfTheFirstHostThatFailed) {
  exits_.on_exit(2, {.code = 3, .message = "first"}, at(0));
  exits_.on_exit(1, {.code = 4}, at(0));
  EXPECT_EQ(exits_.result(0).message, "first");
  EXPECT_EQ(exits_.end_others_at(), at(1)) << "rank 0 may be printing the same error";
  exits_.on_exit(0, {}, at(0.5));
  EXPECT_EQ(exits_.end_others_at(), at(0));
}

TEST_F(AnEnding, IsNotThatOfAHostThatLostAnother) {
  exits_.on_exit(1, {.code = 86, .message = "lost"}, at(0));
  EXPECT_EQ(exits_.result(0).message, "lost");
  EXPECT_EQ(exits_.end_others_at(), at(5));
  exits_.on_exit(0, {.code = 3, .message = "cause"}, at(1));
  EXPECT_EQ(exits_.result(0).message, "cause");
  EXPECT_EQ(exits_.end_others_at(), at(0));
}

TEST_F(AnEnding, IsThatOfRank0IfAllFailAlike) {
  exits_.on_exit(1, {.code = 1, .message = "a traceback"}, at(0));
  exits_.on_exit(0, {.code = 1, .message = "rank 0"}, at(1));
  EXPECT_EQ(exits_.result(0).message, "rank 0");
}

TEST_F(AnEnding, ALostHostIsACause) {
  exits_.on_exit(0, {.code = 86, .message = "lost"}, at(0));
  exits_.on_loss(1, "node1", "host gone", at(1));
  EXPECT_EQ(exits_.end_others_at(), at(0));
  EXPECT_EQ(exits_.result(0).message, "tarantella: host gone\n");
  EXPECT_EQ(exits_.result(0).code, 1);
}

TEST_F(AnEnding, IsThatOfTheLostHostThatTheRemoteLauncherNames) {
  exits_.on_loss(1, "node1", "taken down, too", at(0));
  exits_.on_loss(2, "node2", "gone", at(0.1));
  EXPECT_EQ(exits_.result(0, "it said nothing").lost_hosts, std::vector<std::string>{"node1"});
  EXPECT_EQ(exits_.result(0, "a daemon failed: node2").lost_hosts, std::vector<std::string>{"node2"});
  EXPECT_EQ(exits_.result(0, "a daemon failed: node2").failure, FailureKind::kHost);
}

TEST_F(AnEnding, BySignalIsNotAFailureOfRanks) {
  exits_.on_exit(0, {.code = 143, .signal = SIGTERM}, at(0));
  EXPECT_EQ(exits_.result(SIGTERM).signal, SIGTERM);
  exits_.on_loss(1, "node1", "host gone", at(1));
  EXPECT_EQ(exits_.result(SIGTERM).signal, SIGTERM);
  exits_.on_exit(2, {.code = 9, .message = "own"}, at(1));
  EXPECT_EQ(exits_.result(0).code, 1);
}

}  // namespace
}  // namespace tarantella::launch
