#pragma once
// Decides which rank's failure ended the job. Pure: it is told what happened and when, and starts and stops nothing.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/process.h"

namespace tarantella::launch {

/// The exit code of a rank that ends only because another rank failed.
constexpr int kPeerFailed = 86;

class FirstCause {
 public:
  struct Ending {
    int rank = 0;
    pid_t pid = -1;
    Exit exit;
    bool ended = true;  ///< false: the rank has only reported that it will end so
  };

  /// The rank reports that it fails with exit code `exit.value`. Its process may run on for a while.
  void reported(const Ending& ending, Clock::time_point when);

  /// The rank ended at `when` by itself. Do not call it for ranks that the launcher has stopped.
  void ended(const Ending& ending, Clock::time_point when);

  /// How long after the first failure the master may run on, to print its own error.
  static constexpr Duration kGrace = 1s;
  /// The same for a rank that has reported a failure, or that others blame: it may still close its files.
  static constexpr Duration kGraceOfTheBlamed = 5s;

  bool failed() const { return !failures_.empty(); }
  /// When to stop waiting for ranks that end by themselves. Requires failed().
  Clock::time_point deadline() const;
  /// True if waiting longer would change nothing: the cause is known, and the master has ended.
  bool settled() const;
  /// The first rank that failed, or reported a failure, and does not blame another; if all blame another, the first.
  /// Requires failed().
  const Ending& cause() const;
  /// The rank that ended with exit code 0 before any other failed, if all that failed blame another rank.
  std::optional<Ending> left_early() const;
  /// True if the master failed by an error of its own: its message is on the terminal already.
  bool master_spoke() const;

 private:
  std::vector<Ending> failures_;
  Clock::time_point first_failure_;
  bool master_ended_ = false;
  std::optional<Ending> left_;  ///< the first that ended with exit code 0 before a failure
};

struct Circumstances {
  std::string host;
  int same_error = 0;           ///< how many other ranks raised the same error
  bool stopped_others = false;  ///< whether ranks that ran on were stopped
  std::string held_by = {};     ///< what may have kept the rank from ending
};

/// The launcher's last line: "rank 2 (pid 123 on node07) ended with exit code 3; the other ranks were stopped".
std::string describe(const FirstCause::Ending& ending, const Circumstances& circumstances);

}  // namespace tarantella::launch
