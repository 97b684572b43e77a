#include <gtest/gtest.h>

#include <csignal>

#include "launch/shutdown.h"

namespace tarantella::launch {
namespace {

using Kind = Shutdown::Order::Kind;

FirstCause::Ending ended(int rank, int code) { return {rank, 100 + rank, {false, code}}; }

const Clock::time_point kStart = Clock::time_point() + 1000s;

TEST(Shutdown, NothingIsDueWhileAllRun) {
  Shutdown shutdown({});
  EXPECT_EQ(shutdown.advance(2, kStart).kind, Kind::kNone);
  EXPECT_EQ(shutdown.timeout_ms(kStart), -1);
  shutdown.ended(ended(0, 0), kStart);
  EXPECT_EQ(shutdown.advance(1, kStart).kind, Kind::kNone);
  EXPECT_FALSE(shutdown.given_up(kStart + 1000000s));
}

TEST(Shutdown, AFailureStopsTheOthersAndThenKillsThem) {
  Shutdown shutdown({});
  shutdown.ended(ended(1, 3), kStart);
  EXPECT_EQ(shutdown.advance(2, kStart).kind, Kind::kNone);
  EXPECT_EQ(shutdown.timeout_ms(kStart), 1000);  // the master may have its say
  const auto due = kStart + FirstCause::kGrace;
  EXPECT_EQ(shutdown.advance(2, due).kind, Kind::kStop);
  EXPECT_EQ(shutdown.signal_sent(), SIGTERM);
  EXPECT_TRUE(shutdown.stopped_others());
  EXPECT_EQ(shutdown.timeout_ms(due), 500);
  const Shutdown::Order order = shutdown.advance(2, due + 600ms);
  EXPECT_EQ(order.kind, Kind::kKill);
  EXPECT_EQ(order.why, "the job has failed, and it was still running 0.6 s after signal 15 (SIGTERM)");
  EXPECT_FALSE(shutdown.given_up(due + 15s));
  EXPECT_TRUE(shutdown.given_up(due + 600ms + 15s));
}

TEST(Shutdown, EndsAfterTheStopAreNoFailures) {
  Shutdown shutdown({});
  shutdown.signalled({SIGINT, true}, 2, kStart);
  EXPECT_FALSE(shutdown.undecided());
  shutdown.ended(ended(1, 3), kStart);
  shutdown.reported(ended(0, 3), kStart);
  EXPECT_FALSE(shutdown.first_cause().failed());
}

TEST(Shutdown, TheGraceDependsOnTheSignalUnlessItIsGiven) {
  const auto grace_ms = [](std::optional<double> seconds, int number) {
    Shutdown shutdown(seconds);
    const Shutdown::Order order = shutdown.signalled({number, false}, 2, kStart);
    EXPECT_EQ(order.kind, Kind::kStop);
    EXPECT_EQ(order.to_process_alone, number == SIGTERM || number == SIGHUP);
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
  EXPECT_TRUE(shutdown.signalled({SIGINT, true}, 2, kStart).spare_master);
  EXPECT_EQ(shutdown.signalled({SIGINT, true}, 2, kStart + 50ms).kind, Kind::kNone);
  EXPECT_EQ(shutdown.signalled({SIGTERM, false}, 2, kStart + 1s).kind, Kind::kNone);
  EXPECT_EQ(shutdown.signalled({SIGINT, true}, 2, kStart + 1s).kind, Kind::kKill);
}

TEST(Shutdown, ASignalWhileStoppingExtendsTheGraceAndCtrlCKills) {
  const auto stopping = [] {
    Shutdown shutdown({});
    shutdown.ended(ended(0, 3), kStart);
    EXPECT_EQ(shutdown.advance(2, kStart).kind, Kind::kStop);
    return shutdown;
  };
  Shutdown same = stopping();  // they have it, and get the time of that signal
  EXPECT_EQ(same.signalled({SIGTERM, false}, 2, kStart).kind, Kind::kCountAsTold);
  EXPECT_EQ(same.timeout_ms(kStart), 30000);
  Shutdown other = stopping();
  EXPECT_EQ(other.signalled({SIGHUP, false}, 2, kStart).kind, Kind::kStop);
  Shutdown key = stopping();
  const Shutdown::Order order = key.signalled({SIGINT, true}, 2, kStart);
  EXPECT_EQ(order.kind, Kind::kKill);
  EXPECT_EQ(order.why, "signal 2 (SIGINT) came while the job was ending");
}

TEST(Shutdown, BlamesNoRankThatEndedOfTheSignalItself) {
  for (const int number : {SIGTERM, SIGKILL}) {
    Shutdown shutdown({});
    shutdown.ended({1, 101, {true, number}}, kStart);
    shutdown.advance(2, kStart);
    shutdown.signalled({SIGTERM, false}, 2, kStart);
    EXPECT_EQ(shutdown.blames_a_rank(), number != SIGTERM);
    EXPECT_EQ(shutdown.interrupted_by(), SIGTERM);
  }
}

TEST(Shutdown, GivesUpSoonAfterTheLastRankHasEnded) {
  Shutdown shutdown({});
  shutdown.signalled({SIGTERM, false}, 1, kStart);
  EXPECT_EQ(shutdown.advance(0, kStart).kind, Kind::kKill);
  EXPECT_TRUE(shutdown.given_up(kStart + 15s));
}

TEST(Shutdown, WhatCannotStartIsKilledWithoutAWord) {
  Shutdown shutdown({});
  const Shutdown::Order order = shutdown.cannot_start(kStart);
  EXPECT_EQ(order.kind, Kind::kKill);
  EXPECT_EQ(order.why, "");
  EXPECT_TRUE(shutdown.killing());
}

}  // namespace
}  // namespace tarantella::launch
