#pragma once
// Decides which rank's failure ended the job. Pure: it gets events with their times, and starts and stops nothing.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/system/process.h"

namespace tarantella::launch {

/// The exit code of a rank that ends only because another rank failed.
constexpr int kPeerFailed = 86;

/// The exit code of a rank that has saved its work since its time is over: EX_TEMPFAIL of sysexits.h.
constexpr int kPreempted = 75;

/// How a rank ended.
struct RankExit {
  int rank = 0;
  pid_t pid = -1;
  Exit status;
  bool has_exited = true;  ///< false: the rank has only reported that it will end so
};

class RootCause {
 public:
  /// The rank reports that it fails with exit code `status.value`. Its process may run on for a while.
  void on_failure_report(const RankExit& rank_exit, Clock::time_point when);

  /// The rank ended at `when` by itself. Do not call it for ranks that the launcher has stopped.
  void on_exit(const RankExit& rank_exit, Clock::time_point when);

  /// How long after the first failure rank 0 may run on, to print its own error.
  static constexpr Duration kRank0Grace = 1s;
  /// The same for the root cause if it is not known yet, or has only reported its failure: it may still close files.
  static constexpr Duration kRootCauseGrace = 5s;

  bool failed() const { return !failures_.empty(); }
  /// When to stop waiting for ranks that end by themselves. Requires failed().
  Clock::time_point deadline() const;
  /// Whether waiting longer would change nothing: the cause is known, and rank 0 has ended.
  bool is_final() const;
  /// The first rank that failed, or reported a failure, by itself; if all failed because of another one, the first.
  /// Requires failed().
  const RankExit& cause() const;
  /// The rank that ended with exit code 0 before any other failed, if all failed because of another rank.
  std::optional<RankExit> exited_early() const;
  /// Whether rank 0 failed by an error of its own: its message is on the terminal already.
  bool rank_0_showed_own_error() const;

 private:
  std::vector<RankExit> failures_;
  Clock::time_point first_failure_;
  bool rank_0_ended_ = false;
  std::optional<RankExit> early_exit_;  ///< the first that ended with exit code 0 before a failure
};

/// What the launcher says about a failure, beside the rank and its exit code.
struct FailureContext {
  std::string host;
  int same_error = 0;           ///< how many other ranks raised the same error
  bool stopped_others = false;  ///< whether ranks that ran on were stopped
  std::string blocked_by = {};  ///< what may have kept the rank from ending
};

/// The launcher's last line: "rank 2 (pid 123 on node07) ended with exit code 3; the other ranks were stopped".
std::string describe(const RankExit& rank_exit, const FailureContext& context);

}  // namespace tarantella::launch
