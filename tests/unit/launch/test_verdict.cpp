#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include "launch/say.h"
#include "launch/verdict.h"

namespace tarantella::launch {
namespace {

/// A job whose parts each test sets.
struct VerdictTest : testing::Test {
  Status start_error;
  std::optional<ExecFailure> exec_failure;
  std::string program = "/bin/model";
  Shutdown shutdown{std::nullopt};
  Failures failures;
  std::string kept;
  bool shows_all_errors = false;

  void ended(int rank, int code) { shutdown.ended({rank, 100 + rank, {false, code}}, {}); }
  Verdict verdict() const {
    return verdict_on({.start_error = start_error,
                       .exec_failure = exec_failure,
                       .program = program,
                       .shutdown = shutdown,
                       .failures = failures,
                       .last_words = [this](int) { return kept; },
                       .shows_all_errors = shows_all_errors,
                       .host = "node07"});
  }
};

TEST_F(VerdictTest, SaysNothingIfAllRanksEndWell) {
  ended(0, 0);
  EXPECT_EQ(verdict().code, 0);
  EXPECT_EQ(verdict().signal, 0);
  EXPECT_EQ(verdict().words, "");
}

TEST_F(VerdictTest, SaysWhyTheJobCouldNotStart) {
  exec_failure = ExecFailure{1, ENOENT};
  EXPECT_EQ(verdict().code, kCannotRun);
  EXPECT_EQ(verdict().words,
            "tarantella: cannot run '/bin/model': No such file or directory (does its first line, #!, name a "
            "program that is not there?)\n");
  start_error = {Code::kSystem, "cannot start rank 3"};
  EXPECT_EQ(verdict().code, kLaunchError);
  EXPECT_EQ(verdict().words, "tarantella: cannot start rank 3\n");
}

TEST_F(VerdictTest, NamesTheSignalThatStoppedTheJob) {
  shutdown.signalled({SIGINT, true}, 2, {});
  EXPECT_EQ(verdict().signal, SIGINT);
  EXPECT_EQ(verdict().code, 130);
  EXPECT_EQ(verdict().words, "tarantella: stopped by signal 2 (SIGINT)\n");
  exec_failure = ExecFailure{1, EACCES};
  EXPECT_EQ(verdict().signal, 0);
}

TEST_F(VerdictTest, NamesAFailureThatCameBeforeTheSignal) {
  ended(1, 3);
  shutdown.signalled({SIGTERM, false}, 1, {});
  EXPECT_EQ(verdict().signal, 0);
  EXPECT_EQ(verdict().code, 3);
}

TEST_F(VerdictTest, ShowsTheErrorOfARankOnce) {
  kept = "Traceback\n";
  const std::string line = "tarantella: rank 1 (pid 101 on node07) ended with exit code 3\n";
  ended(1, 3);
  EXPECT_EQ(verdict().words, "Traceback\n" + line);
  failures.add({Report::Kind::kFailed, 1, 3, "ValueError: rank 1\n", ""});
  EXPECT_EQ(verdict().words, "ValueError: rank 1\n" + line);
  failures.add({Report::Kind::kFailed, 0, 3, "ValueError: rank 0\n", ""});  // which the user has seen
  EXPECT_EQ(verdict().words,
            "tarantella: rank 1 (pid 101 on node07) ended with exit code 3, as 1 more rank did with the same "
            "error\n");
}

TEST_F(VerdictTest, LeavesOutAnErrorThatTheUserHasSeen) {
  kept = "Traceback\n";
  shows_all_errors = true;
  ended(1, 3);
  EXPECT_EQ(verdict().words, "tarantella: rank 1 (pid 101 on node07) ended with exit code 3\n");
}

TEST_F(VerdictTest, SaysThatOnlyTheMasterReadsATerminal) {
  kept = "EOFError: EOF when reading a line\n";
  ended(1, 1);
  EXPECT_NE(verdict().words.find("tarantella: only rank 0 reads stdin"), std::string::npos);
}

}  // namespace
}  // namespace tarantella::launch
