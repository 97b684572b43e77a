#include <gtest/gtest.h>

#include "launch/cluster/remote_launcher_errors.h"

namespace tarantella::launch {
namespace {

const std::string kDashes(60, '-');

std::string between_dashes(const std::string& message) {
  return kDashes + "\n" + message + "\n" + kDashes + "\n";
}

const std::string kMissing = between_dashes(
    "prterun was unable to launch the specified application as it could not access\nor execute an "
    "executable:\n\n"
    "   Executable: /opt/my programs/tarantella\r\n   Node: node2\n\nwhile attempting to start process rank "
    "1.");
constexpr char kMessage[] =
    "host 'node2' cannot run /opt/my programs/tarantella; "
    "install the same version of tarantella at this place on all hosts";

TEST(LauncherErrors, OpenMpiNamesTheMissingProgram) {
  EXPECT_EQ(missing_program(kMissing), kMessage);
  EXPECT_EQ(missing_program("Welcome\n" + between_dashes("Have fun") + kMissing), kMessage);
}

TEST(LauncherErrors, AnUnfinishedLineSaysNothingYet) {
  const size_t name = kMissing.find("node2");
  for (size_t size = 0; size < kMissing.size(); ++size) {
    const std::string message = missing_program(kMissing.substr(0, size));
    EXPECT_EQ(message, size <= name + 5 ? "" : kMessage) << kMissing.substr(0, size);
  }
  const std::string mpich =
      "[proxy:1@node2] launch_procs: execvp error on file /t (No such file or directory)\n";
  EXPECT_EQ(missing_program(mpich.substr(0, mpich.size() - 1)), "");
  EXPECT_EQ(missing_program(mpich),
            "host 'node2' cannot run /t (No such file or directory); "
            "install the same version of tarantella at this place on all hosts");
}

TEST(LauncherErrors, ABannerIsNoMessage) {
  EXPECT_EQ(missing_program("Node: login1\nExecutable: none\n"), "");
  EXPECT_EQ(missing_program(between_dashes("Welcome to Node: login1\nAsk for an Executable: of your own")),
            "");
  EXPECT_EQ(missing_program(between_dashes("Node: login1") + between_dashes("Executable: none")), "");
}

TEST(LauncherErrors, AFieldWithoutAValueNamesNothing) {
  EXPECT_EQ(missing_program(between_dashes("Executable:\n\nNode:\n")), "");
  EXPECT_EQ(error_in(between_dashes("The daemon was lost\n\n  Remote host:\n")), "The daemon was lost");
  EXPECT_EQ(error_in(between_dashes("The daemon was lost\n\n  Remote host:   node2\n")),
            "The daemon was lost (node2): try ssh to this host");
}

TEST(LauncherErrors, WhatSshSaysIsTheCauseOfALostDaemon) {
  const std::string ssh = "ssh: connect to host node2 port 22: No route to host",
                    lost = between_dashes(
                        "The daemon was lost\n\n  Remote host:   node2\n\nThis may be. Or not.");
  EXPECT_EQ(error_in(ssh + "\n" + lost), ssh);
  EXPECT_EQ(error_in(lost + ssh + "\n"), ssh);
}

TEST(LauncherErrors, OfTheBatchSystemSayWhyAJobWasEnded) {
  const std::string cancelled =
      "slurmstepd: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-28T05:00:00 ***\n";
  EXPECT_EQ(termination_notices("srun: Job step aborted\n" + cancelled + "srun: error: n2: task 1: Killed\n"),
            cancelled);
  EXPECT_EQ(termination_notices("[mpiexec@n1] APPLICATION TIMED OUT, TIMEOUT = 2s\n"),
            "[mpiexec@n1] APPLICATION TIMED OUT, TIMEOUT = 2s\n");
  EXPECT_EQ(termination_notices("= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"), "");
}

TEST(LauncherErrors, AWarningOfOpenMpiIsNoCause) {
  const std::string warning =
      "[node1:7] plm:ssh: Warning: setpgid(8,8) failed in parent with errno=Permission denied(13)\n";
  EXPECT_EQ(error_in(warning + "ssh: connect to host node2 port 22: No route to host\n"),
            "ssh: connect to host node2 port 22: No route to host");
  EXPECT_TRUE(error_in(warning).find("; try ssh to each of these hosts") != std::string::npos)
      << error_in(warning);
}

}  // namespace
}  // namespace tarantella::launch
