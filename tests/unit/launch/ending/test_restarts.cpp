#include <gtest/gtest.h>

#include "launch/ending/restarts.h"

namespace tarantella::launch {
namespace {

const Clock::time_point kNow = Clock::time_point() + 1000s;

JobResult killed(int rank) {
  return {.code = 137, .failure = FailureKind::kKilled, .cause = "rank " + std::to_string(rank)};
}

JobResult raised(int code) {
  return {.code = code, .failure = FailureKind::kException, .cause = "exit code " + std::to_string(code)};
}

JobResult lost(const std::string& host, bool started = true) {
  return {.code = 127,
          .failure = FailureKind::kHost,
          .cause = "host " + host,
          .lost_hosts = {host},
          .started = started};
}

JobResult later(JobResult result) {
  result.progressed = true;
  return result;
}

std::string line_after(const RestartOptions& options, const std::vector<JobResult>& results,
                       size_t hosts = 1) {
  Restarts restarts(options, hosts);
  Restarts::Decision decision;
  for (const JobResult& result : results) decision = restarts.after(result, kNow);
  return decision.line;
}

TEST(Restarts, FollowWhatTheUserHasChosen) {
  const std::string first = "restart 1 of 3 in 1 s";
  const struct {
    std::set<FailureKind> kinds;
    JobResult result;
    std::string line;
  } cases[] = {
      {{FailureKind::kKilled}, killed(1), first},
      {{FailureKind::kException}, killed(1), "not restarted: 'killed' is not in --restart-on"},
      {{FailureKind::kException}, raised(1), first},
      {{FailureKind::kKilled, FailureKind::kHost},
       raised(1),
       "not restarted: 'exception' is not in --restart-on"},
      {{FailureKind::kHost}, killed(1), "not restarted: 'killed' is not in --restart-on"},
      {{FailureKind::kKilled}, lost("a"), "not restarted: 'host' is not in --restart-on"},
  };
  for (const auto& each : cases) {
    Restarts restarts({.max_restarts = 3, .kinds = each.kinds}, 1);
    const Restarts::Decision decision = restarts.after(each.result, kNow);
    EXPECT_EQ(decision.line, each.line);
    EXPECT_EQ(decision.restart, each.line == first);
    EXPECT_EQ(restarts.count(), decision.restart ? 1 : 0);
  }
}

TEST(Restarts, DoNotFollowAnEndThatIsNoFailure) {
  JobResult interrupted = killed(0);
  interrupted.signal = 15;
  for (const JobResult& result :
       {JobResult{}, JobResult{.code = 75}, JobResult{.code = 127}, interrupted, lost("a", false)}) {
    Restarts restarts({.max_restarts = 3}, 2);
    const Restarts::Decision decision = restarts.after(result, kNow);
    EXPECT_FALSE(decision.restart);
    EXPECT_EQ(decision.line, "");
  }
  EXPECT_EQ(line_after({}, {killed(0)}), "");
}

TEST(Restarts, EndWithTheSameFailureTwiceWithoutProgress) {
  const std::string same =
      "not restarted: the same failure twice, without a snapshot or a completed epoch between them";
  EXPECT_EQ(line_after({.max_restarts = 9}, {killed(1), killed(1)}), same);
  EXPECT_EQ(line_after({.max_restarts = 9}, {later(killed(1)), killed(1)}), same);
  EXPECT_EQ(line_after({.max_restarts = 9}, {killed(1), killed(2), killed(2)}), same);
  EXPECT_EQ(line_after({.max_restarts = 9}, {killed(1), later(killed(1))}), "restart 2 of 9 in 1 s");
  EXPECT_EQ(line_after({.max_restarts = 9}, {killed(1), killed(2)}), "restart 2 of 9 in 2 s");
  EXPECT_EQ(line_after({.max_restarts = 9}, {lost("a"), lost("a")}, 2), same);
}

TEST(Restarts, EndWhenAllAreUsedUp) {
  EXPECT_EQ(line_after({.max_restarts = 2}, {killed(1), killed(2), killed(3)}),
            "not restarted: 2 of 2 restarts are used up (--max-restarts)");
}

TEST(Restarts, PauseLongerAfterEachFailureWithoutProgress) {
  Restarts restarts({.max_restarts = 99}, 1);
  std::vector<double> pauses;
  for (int rank = 0; rank < 9; ++rank) pauses.push_back(in_seconds(restarts.after(killed(rank), kNow).pause));
  EXPECT_EQ(pauses, (std::vector<double>{1, 2, 4, 8, 16, 32, 60, 60, 60}));
  EXPECT_EQ(restarts.after(later(killed(9)), kNow).pause, 1s);
}

TEST(Restarts, GoOnWithoutALostHostIfEnoughAreLeft) {
  Restarts restarts({.max_restarts = 3, .min_hosts = 2}, 3);
  const Restarts::Decision first = restarts.after(lost("b"), kNow);
  EXPECT_EQ(first.dropped, std::vector<std::string>{"b"});
  EXPECT_EQ(first.line, "restart 1 of 3 in 1 s, without host 'b'");
  const Restarts::Decision second = restarts.after(lost("c"), kNow);
  EXPECT_TRUE(second.restart);
  EXPECT_TRUE(second.dropped.empty());
  EXPECT_EQ(second.line, "restart 2 of 3 in 2 s, and a wait of up to 600 s for host 'c' (--host-timeout)");
}

TEST(Restarts, WaitForALostHostForAStatedTime) {
  Restarts restarts({.max_restarts = 1, .host_timeout = 30s}, 2);
  EXPECT_EQ(restarts.after(lost("b"), kNow).line,
            "restart 1 of 1 in 1 s, and a wait of up to 30 s for host 'b' (--host-timeout)");
  const Restarts::Decision try_again = restarts.after(lost("b", false), kNow + 10s);
  EXPECT_TRUE(try_again.restart);
  EXPECT_EQ(try_again.line, "next try in 5 s");
  EXPECT_EQ(restarts.count(), 1);
  const Restarts::Decision end = restarts.after(lost("b", false), kNow + 30s);
  EXPECT_FALSE(end.restart);
  EXPECT_EQ(end.line, "not restarted: host 'b' did not come back within 30 s (--host-timeout)");
}

TEST(Restarts, WaitAnewForAHostThatCameBackAndWasLostAgain) {
  Restarts restarts({.max_restarts = 5, .host_timeout = 30s}, 2);
  restarts.after(lost("b"), kNow);
  EXPECT_TRUE(restarts.after(later(lost("b")), kNow + 100s).restart);
  EXPECT_TRUE(restarts.after(lost("b", false), kNow + 120s).restart);
  EXPECT_FALSE(restarts.after(lost("b", false), kNow + 131s).restart);
}

}  // namespace
}  // namespace tarantella::launch
