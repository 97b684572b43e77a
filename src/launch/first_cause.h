#pragma once
// Which rank ended the job. Pure: told what happened and when, starts and stops nothing.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/process.h"

namespace tarantella::launch {

/// A rank that ends with this code says: only because another rank failed.
constexpr int kPeerFailed = 86;

class FirstCause {
 public:
  struct Ending {
    int rank = 0;
    pid_t pid = -1;
    Exit exit;
  };

  /// Rank ended at `when`, of itself: ranks that the launcher stopped are not reported.
  void ended(const Ending& ending, Clock::time_point when);

  /// How long after the first failure other ranks may end of themselves: the master, to have its say; and where all
  /// that have failed blame another, that one, which may still be printing its traceback or closing its files.
  static constexpr Duration kGrace = 1s;
  static constexpr Duration kGraceOfTheBlamed = 5s;

  bool failed() const { return !failures_.empty(); }
  /// When to stop waiting. Only if failed().
  Clock::time_point deadline() const;
  /// Waiting longer would change nothing: the cause is known, and the master has had its say.
  bool settled() const;
  /// The first failed rank that does not blame another; else the first. Only if failed().
  const Ending& cause() const;
  /// The master failed by itself and not of another's death: its own message is on the terminal already.
  bool master_spoke() const;

 private:
  std::vector<Ending> failures_;
  Clock::time_point first_failure_;
  bool master_ended_ = false;
};

/// "rank 2 (pid 123 on node07) ended with exit code 3; the other ranks were stopped".
std::string describe(const FirstCause::Ending& ending, const std::string& host, bool stopped_others);

}  // namespace tarantella::launch
