#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include "launch/ending/job_result.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// A job whose parts each test sets.
struct JobResultTest : testing::Test {
  Status start_error;
  std::optional<ExecFailure> exec_failure;
  std::string program = "/bin/model";
  Shutdown shutdown{std::nullopt};
  Failures failures;
  std::string kept;
  bool shows_all_errors = false;

  void ended(int rank, int code) { shutdown.on_exit({rank, 100 + rank, {false, code}}, {}); }
  JobResult result() const {
    return result_of({.start_error = start_error,
                      .exec_failure = exec_failure,
                      .program = program,
                      .shutdown = shutdown,
                      .failures = failures,
                      .stderr_excerpt = [this](int) { return kept; },
                      .shows_all_errors = shows_all_errors,
                      .host = "node07"});
  }
};

TEST_F(JobResultTest, SaysNothingIfAllRanksEndWell) {
  ended(0, 0);
  EXPECT_EQ(result().code, 0);
  EXPECT_EQ(result().signal, 0);
  EXPECT_EQ(result().message, "");
}

TEST_F(JobResultTest, SaysWhyTheJobCouldNotStart) {
  exec_failure = ExecFailure{1, ENOENT};
  EXPECT_EQ(result().code, kCannotRun);
  EXPECT_EQ(result().message,
            "tarantella: cannot run '/bin/model': No such file or directory (does its first line, #!, name a "
            "program that is not there?)\n");
  start_error = {Code::kSystem, "cannot start rank 3"};
  EXPECT_EQ(result().code, kLaunchError);
  EXPECT_EQ(result().message, "tarantella: cannot start rank 3\n");
}

TEST_F(JobResultTest, NamesTheSignalThatStoppedTheJob) {
  shutdown.on_signal({SIGINT, true}, 2, {});
  EXPECT_EQ(result().signal, SIGINT);
  EXPECT_EQ(result().code, 130);
  EXPECT_EQ(result().message, "tarantella: stopped by signal 2 (SIGINT)\n");
  exec_failure = ExecFailure{1, EACCES};
  EXPECT_EQ(result().signal, 0);
}

TEST_F(JobResultTest, RanksThatSaveAfterASignalAskToBeQueuedAgain) {
  shutdown.on_signal({SIGTERM, false}, 2, {});
  EXPECT_EQ(result().code, 143);
  ended(0, kPreempted);
  EXPECT_EQ(result().code, kPreempted);
  EXPECT_EQ(result().signal, 0);
  EXPECT_EQ(result().message,
            "tarantella: stopped by signal 15 (SIGTERM), after all ranks saved their work\n");
  ended(1, 1);
  EXPECT_EQ(result().code, 143);
  ended(2, kPreempted);
  EXPECT_EQ(result().code, 143);
}

TEST_F(JobResultTest, NamesAFailureThatCameBeforeTheSignal) {
  ended(1, 3);
  shutdown.on_signal({SIGTERM, false}, 1, {});
  EXPECT_EQ(result().signal, 0);
  EXPECT_EQ(result().code, 3);
}

TEST_F(JobResultTest, ShowsTheErrorOfARankOnce) {
  kept = "Traceback\n";
  const std::string line = "tarantella: rank 1 (pid 101 on node07) ended with exit code 3\n";
  ended(1, 3);
  EXPECT_EQ(result().message, "Traceback\n" + line);
  failures.add({Report::Kind::kFailed, 1, 3, "ValueError: rank 1\n", ""});
  EXPECT_EQ(result().message, "ValueError: rank 1\n" + line);
  failures.add({Report::Kind::kFailed, 0, 3, "ValueError: rank 0\n", ""});  // which the user has seen
  EXPECT_EQ(result().message,
            "tarantella: rank 1 (pid 101 on node07) ended with exit code 3, as 1 more rank did with the same "
            "error\n");
}

TEST_F(JobResultTest, LeavesOutAnErrorThatTheUserHasSeen) {
  kept = "Traceback\n";
  shows_all_errors = true;
  ended(1, 3);
  EXPECT_EQ(result().message, "tarantella: rank 1 (pid 101 on node07) ended with exit code 3\n");
}

TEST_F(JobResultTest, SaysThatOnlyRank0ReadsATerminal) {
  kept = "EOFError: EOF when reading a line\n";
  ended(1, 1);
  EXPECT_NE(result().message.find("tarantella: only rank 0 reads stdin"), std::string::npos);
}

}  // namespace
}  // namespace tarantella::launch
