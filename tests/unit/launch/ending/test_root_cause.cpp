#include <gtest/gtest.h>

#include <csignal>

#include "launch/ending/root_cause.h"

namespace tarantella::launch {
namespace {

RankExit ended(int rank, int code) { return {rank, 100 + rank, {false, code}}; }
RankExit killed(int rank, int number) { return {rank, 100 + rank, {true, number}}; }

const Clock::time_point kStart{};

TEST(RootCause, IsNoneIfAllRanksEndWell) {
  RootCause cause;
  cause.on_exit(ended(0, 0), kStart);
  cause.on_exit(ended(1, 0), kStart);
  EXPECT_FALSE(cause.failed());
  EXPECT_FALSE(cause.is_final());
}

TEST(RootCause, WaitsForRank0) {
  RootCause cause;
  cause.on_exit(ended(2, 3), kStart + 5ms);
  EXPECT_TRUE(cause.failed());
  EXPECT_FALSE(cause.is_final());
  EXPECT_EQ(cause.deadline(), kStart + 5ms + RootCause::kRank0Grace);
  cause.on_exit(ended(0, 1), kStart + 9ms);
  EXPECT_TRUE(cause.is_final());
  EXPECT_EQ(cause.cause().rank, 2);
  EXPECT_TRUE(cause.rank_0_showed_own_error());
  EXPECT_EQ(cause.deadline(), kStart + 5ms + RootCause::kRank0Grace);
}

TEST(RootCause, IsSettledAtOnceIfRank0Fails) {
  RootCause cause;
  cause.on_exit(ended(0, 1), kStart);
  EXPECT_TRUE(cause.is_final());
  EXPECT_EQ(cause.cause().rank, 0);
}

TEST(RootCause, DoesNotWaitForARank0ThatHasEnded) {
  RootCause cause;
  cause.on_exit(ended(0, 0), kStart);
  cause.on_exit(ended(1, 1), kStart + 1s);
  EXPECT_TRUE(cause.is_final());
  EXPECT_FALSE(cause.rank_0_showed_own_error());
}

TEST(RootCause, IsNoRankThatFailedBecauseOfAnother) {
  RootCause cause;
  cause.on_exit(ended(0, kPeerFailed), kStart);
  EXPECT_FALSE(cause.is_final());
  EXPECT_EQ(cause.cause().rank, 0);
  EXPECT_FALSE(cause.rank_0_showed_own_error());
  cause.on_exit(killed(3, SIGSEGV), kStart + 100ms);
  EXPECT_TRUE(cause.is_final());
  EXPECT_EQ(cause.cause().rank, 3);
  EXPECT_EQ(cause.cause().status.code(), 139);
}

TEST(RootCause, WaitsLongerForARankThatOthersHaveLost) {
  RootCause cause;
  cause.on_exit(ended(0, kPeerFailed), kStart);
  EXPECT_EQ(cause.deadline(), kStart + RootCause::kRootCauseGrace);
  cause.on_exit(ended(2, kPeerFailed), kStart + 1s);
  EXPECT_EQ(cause.deadline(), kStart + RootCause::kRootCauseGrace);
  cause.on_exit(ended(1, 1), kStart + 2s);
  EXPECT_LT(cause.deadline(), kStart + 2s);
}

TEST(RootCause, DoesNotTakeASignalNumberForAnExitCode) {
  RootCause cause;
  cause.on_exit(killed(1, kPeerFailed), kStart);  // a signal of that number is a failure of its own
  cause.on_exit(ended(2, 5), kStart);
  EXPECT_EQ(cause.cause().rank, 1);
}

TEST(RootCause, IsTheRankThatFirstReportsAFailure) {
  RootCause cause;
  cause.on_failure_report(ended(1, 3), kStart);
  EXPECT_TRUE(cause.failed());
  EXPECT_EQ(cause.deadline(), kStart + RootCause::kRootCauseGrace);
  cause.on_exit(ended(0, 1), kStart + 100ms);  // a consequence, whatever its exit code
  EXPECT_EQ(cause.cause().rank, 1);
  EXPECT_FALSE(cause.cause().has_exited);
  EXPECT_FALSE(cause.is_final());
  cause.on_exit(killed(1, SIGSEGV), kStart + 1s);
  EXPECT_EQ(cause.cause().status.code(), 139);
  EXPECT_TRUE(cause.is_final());
}

TEST(RootCause, IsAReportedFailureHoweverTheRankEnds) {
  RootCause cause;
  cause.on_failure_report(ended(1, 3), kStart);
  cause.on_exit(ended(1, 0), kStart + 1s);
  EXPECT_EQ(cause.cause().status.code(), 3);
  EXPECT_TRUE(cause.cause().has_exited);
}

TEST(RootCause, IsDescribedInOneLine) {
  EXPECT_EQ(describe(ended(2, 3), {.host = "node07", .stopped_others = true}),
            "rank 2 (pid 102 on node07) ended with exit code 3; the other ranks were stopped");
  EXPECT_EQ(describe(ended(0, 3), {.host = "node07"}), "rank 0 (pid 100 on node07) ended with exit code 3");
  EXPECT_EQ(describe(killed(1, SIGKILL), {.host = "a"}),
            "rank 1 (pid 101 on a) was killed by signal 9 (SIGKILL); if the machine ran out of memory, see "
            "dmesg or "
            "use fewer ranks");
  EXPECT_EQ(describe(killed(1, SIGSEGV), {.host = "a"}),
            "rank 1 (pid 101 on a) was killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(describe(ended(1, 1), {.host = "a", .same_error = 3}),
            "rank 1 (pid 101 on a) ended with exit code 1, as 3 more ranks did with the same error");
  RankExit running = ended(1, 3);
  running.has_exited = false;
  EXPECT_EQ(
      describe(running, {.host = "a", .blocked_by = "thread 'loader'"}),
      "rank 1 (pid 101 on a) failed (exit code 3) and was stopped: it was still running thread 'loader'");
  EXPECT_EQ(describe(running, {.host = "a"}), "rank 1 (pid 101 on a) ended with exit code 3");
  EXPECT_EQ(describe(killed(1, 40), {.host = "a"}), "rank 1 (pid 101 on a) was killed by signal 40");
}

}  // namespace
}  // namespace tarantella::launch
