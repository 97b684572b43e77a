#include <gtest/gtest.h>

#include <csignal>

#include "launch/ending/shutdown.h"

namespace tarantella::launch {
namespace {

using Kind = Shutdown::Action::Kind;

RankExit ended(int rank, int code) { return {rank, 100 + rank, {false, code}}; }

const Clock::time_point kStart = Clock::time_point() + 1000s;

TEST(Shutdown, NothingIsDueWhileAllRun) {
  Shutdown shutdown({});
  EXPECT_EQ(shutdown.next_action(2, kStart).kind, Kind::kNone);
  EXPECT_EQ(shutdown.timeout_ms(kStart), -1);
  shutdown.on_exit(ended(0, 0), kStart);
  EXPECT_EQ(shutdown.next_action(1, kStart).kind, Kind::kNone);
  EXPECT_FALSE(shutdown.given_up(kStart + 1000000s));
}

TEST(Shutdown, AFailureStopsTheOthersAndThenKillsThem) {
  Shutdown shutdown({});
  shutdown.on_exit(ended(1, 3), kStart);
  EXPECT_EQ(shutdown.next_action(2, kStart).kind, Kind::kNone);
  EXPECT_EQ(shutdown.timeout_ms(kStart), 1000);  // rank 0 may print its own error
  const auto due = kStart + RootCause::kRank0Grace;
  EXPECT_EQ(shutdown.next_action(2, due).kind, Kind::kStop);
  EXPECT_EQ(shutdown.signal_sent(), SIGTERM);
  EXPECT_TRUE(shutdown.stopped_others());
  EXPECT_EQ(shutdown.timeout_ms(due), 500);
  const Shutdown::Action action = shutdown.next_action(2, due + 600ms);
  EXPECT_EQ(action.kind, Kind::kKill);
  EXPECT_EQ(action.reason, "the job has failed, and it was still running 0.6 s after signal 15 (SIGTERM)");
  EXPECT_FALSE(shutdown.given_up(due + 15s));
  EXPECT_TRUE(shutdown.given_up(due + 600ms + 15s));
}

TEST(Shutdown, EndsAfterTheStopAreNoFailures) {
  Shutdown shutdown({});
  shutdown.on_signal({SIGINT, true}, 2, kStart);
  EXPECT_FALSE(shutdown.is_before_stop());
  shutdown.on_exit(ended(1, 3), kStart);
  shutdown.on_failure_report(ended(0, 3), kStart);
  EXPECT_FALSE(shutdown.root_cause().failed());
}

TEST(Shutdown, TheGraceDependsOnTheSignalUnlessItIsGiven) {
  const auto grace_ms = [](std::optional<double> seconds, int number) {
    Shutdown shutdown(seconds);
    const Shutdown::Action action = shutdown.on_signal({number, false}, 2, kStart);
    EXPECT_EQ(action.kind, Kind::kStop);
    EXPECT_EQ(action.to_process_alone, number == SIGTERM || number == SIGHUP);
    EXPECT_EQ(shutdown.signal_sent(), number);
    return shutdown.timeout_ms(kStart);
  };
  EXPECT_EQ(grace_ms({}, SIGINT), 1500);
  EXPECT_EQ(grace_ms({}, SIGQUIT), 1500);
  EXPECT_EQ(grace_ms({}, SIGTERM), 30000);
  EXPECT_EQ(grace_ms({}, SIGHUP), 30000);
  EXPECT_EQ(grace_ms(0.25, SIGINT), 250);
  EXPECT_EQ(grace_ms(0, SIGTERM), 0);
}

TEST(Shutdown, ASecondCtrlCKillsButNotTheSameOneTwice) {
  Shutdown shutdown({});
  EXPECT_TRUE(shutdown.on_signal({SIGINT, true}, 2, kStart).spare_rank_0);
  EXPECT_EQ(shutdown.on_signal({SIGINT, true}, 2, kStart + 50ms).kind, Kind::kNone);
  EXPECT_EQ(shutdown.on_signal({SIGTERM, false}, 2, kStart + 1s).kind, Kind::kNone);
  EXPECT_EQ(shutdown.on_signal({SIGINT, true}, 2, kStart + 1s).kind, Kind::kKill);
}

TEST(Shutdown, ASignalWhileStoppingExtendsTheGraceAndCtrlCKills) {
  const auto stopping = [] {
    Shutdown shutdown({});
    shutdown.on_exit(ended(0, 3), kStart);
    EXPECT_EQ(shutdown.next_action(2, kStart).kind, Kind::kStop);
    return shutdown;
  };
  Shutdown same = stopping();  // they have it, and get the time of that signal
  EXPECT_EQ(same.on_signal({SIGTERM, false}, 2, kStart).kind, Kind::kMarkSignalled);
  EXPECT_EQ(same.timeout_ms(kStart), 30000);
  Shutdown other = stopping();
  EXPECT_EQ(other.on_signal({SIGHUP, false}, 2, kStart).kind, Kind::kStop);
  Shutdown key = stopping();
  const Shutdown::Action action = key.on_signal({SIGINT, true}, 2, kStart);
  EXPECT_EQ(action.kind, Kind::kKill);
  EXPECT_EQ(action.reason, "signal 2 (SIGINT) came while the job was ending");
}

TEST(Shutdown, HasNoFailureBesideTheSignalIfRanksEndedOfIt) {
  for (const int number : {SIGTERM, SIGKILL}) {
    Shutdown shutdown({});
    shutdown.on_exit({1, 101, {true, number}}, kStart);
    shutdown.next_action(2, kStart);
    shutdown.on_signal({SIGTERM, false}, 2, kStart);
    EXPECT_EQ(shutdown.has_failure_beside_signal(), number != SIGTERM);
    EXPECT_EQ(shutdown.interrupted_by(), SIGTERM);
  }
}

TEST(Shutdown, GivesUpSoonAfterTheLastRankHasEnded) {
  Shutdown shutdown({});
  shutdown.on_signal({SIGTERM, false}, 1, kStart);
  EXPECT_EQ(shutdown.next_action(0, kStart).kind, Kind::kKill);
  EXPECT_TRUE(shutdown.given_up(kStart + 15s));
}

TEST(Shutdown, WhatCannotStartIsKilledWithoutAWord) {
  Shutdown shutdown({});
  const Shutdown::Action action = shutdown.on_start_failure(kStart);
  EXPECT_EQ(action.kind, Kind::kKill);
  EXPECT_EQ(action.reason, "");
  EXPECT_TRUE(shutdown.killing());
}

}  // namespace
}  // namespace tarantella::launch
