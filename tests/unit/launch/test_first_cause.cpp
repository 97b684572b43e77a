#include <gtest/gtest.h>

#include <csignal>

#include "launch/first_cause.h"

namespace tarantella::launch {
namespace {

FirstCause::Ending ended(int rank, int code) { return {rank, 100 + rank, {false, code}}; }
FirstCause::Ending killed(int rank, int number) { return {rank, 100 + rank, {true, number}}; }

const Clock::time_point kStart{};

TEST(FirstCause, IsNoneIfAllRanksEndWell) {
  FirstCause cause;
  cause.ended(ended(0, 0), kStart);
  cause.ended(ended(1, 0), kStart);
  EXPECT_FALSE(cause.failed());
  EXPECT_FALSE(cause.settled());
}

TEST(FirstCause, WaitsForTheMaster) {
  FirstCause cause;
  cause.ended(ended(2, 3), kStart + 5ms);
  EXPECT_TRUE(cause.failed());
  EXPECT_FALSE(cause.settled());
  EXPECT_EQ(cause.deadline(), kStart + 5ms + FirstCause::kGrace);
  cause.ended(ended(0, 1), kStart + 9ms);
  EXPECT_TRUE(cause.settled());
  EXPECT_EQ(cause.cause().rank, 2);
  EXPECT_TRUE(cause.master_spoke());
  EXPECT_EQ(cause.deadline(), kStart + 5ms + FirstCause::kGrace);
}

TEST(FirstCause, IsSettledAtOnceIfTheMasterFails) {
  FirstCause cause;
  cause.ended(ended(0, 1), kStart);
  EXPECT_TRUE(cause.settled());
  EXPECT_EQ(cause.cause().rank, 0);
}

TEST(FirstCause, DoesNotWaitForAMasterThatHasEnded) {
  FirstCause cause;
  cause.ended(ended(0, 0), kStart);
  cause.ended(ended(1, 1), kStart + 1s);
  EXPECT_TRUE(cause.settled());
  EXPECT_FALSE(cause.master_spoke());
}

TEST(FirstCause, IsNoRankThatBlamesAnother) {
  FirstCause cause;
  cause.ended(ended(0, kPeerFailed), kStart);
  EXPECT_FALSE(cause.settled());
  EXPECT_EQ(cause.cause().rank, 0);
  EXPECT_FALSE(cause.master_spoke());
  cause.ended(killed(3, SIGSEGV), kStart + 100ms);
  EXPECT_TRUE(cause.settled());
  EXPECT_EQ(cause.cause().rank, 3);
  EXPECT_EQ(cause.cause().exit.code(), 139);
}

TEST(FirstCause, WaitsLongerForTheRankThatOthersBlame) {
  FirstCause cause;
  cause.ended(ended(0, kPeerFailed), kStart);
  EXPECT_EQ(cause.deadline(), kStart + FirstCause::kGraceOfTheBlamed);
  cause.ended(ended(2, kPeerFailed), kStart + 1s);
  EXPECT_EQ(cause.deadline(), kStart + FirstCause::kGraceOfTheBlamed);
  cause.ended(ended(1, 1), kStart + 2s);
  EXPECT_LT(cause.deadline(), kStart + 2s);
}

TEST(FirstCause, DoesNotTakeASignalNumberForAnExitCode) {
  FirstCause cause;
  cause.ended(killed(1, kPeerFailed), kStart);  // a signal of that number blames nobody
  cause.ended(ended(2, 5), kStart);
  EXPECT_EQ(cause.cause().rank, 1);
}

TEST(FirstCause, IsTheRankThatFirstReportsAFailure) {
  FirstCause cause;
  cause.reported(ended(1, 3), kStart);
  EXPECT_TRUE(cause.failed());
  EXPECT_EQ(cause.deadline(), kStart + FirstCause::kGraceOfTheBlamed);
  cause.ended(ended(0, 1), kStart + 100ms);  // a consequence, whatever its exit code
  EXPECT_EQ(cause.cause().rank, 1);
  EXPECT_FALSE(cause.cause().ended);
  EXPECT_FALSE(cause.settled());
  cause.ended(killed(1, SIGSEGV), kStart + 1s);
  EXPECT_EQ(cause.cause().exit.code(), 139);
  EXPECT_TRUE(cause.settled());
}

TEST(FirstCause, IsAReportedFailureHoweverTheRankEnds) {
  FirstCause cause;
  cause.reported(ended(1, 3), kStart);
  cause.ended(ended(1, 0), kStart + 1s);
  EXPECT_EQ(cause.cause().exit.code(), 3);
  EXPECT_TRUE(cause.cause().ended);
}

TEST(FirstCause, IsDescribedInOneLine) {
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
  FirstCause::Ending running = ended(1, 3);
  running.ended = false;
  EXPECT_EQ(
      describe(running, {.host = "a", .held_by = "thread 'loader'"}),
      "rank 1 (pid 101 on a) failed (exit code 3) and was stopped: it was still running thread 'loader'");
  EXPECT_EQ(describe(running, {.host = "a"}), "rank 1 (pid 101 on a) ended with exit code 3");
  EXPECT_EQ(describe(killed(1, 40), {.host = "a"}), "rank 1 (pid 101 on a) was killed by signal 40");
}

}  // namespace
}  // namespace tarantella::launch
