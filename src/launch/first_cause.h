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
    bool ended = true;  ///< else it has only said that it will end so
  };

  /// Rank says that it fails with exit code `exit.value`; its process may go on for a while.
  void reported(const Ending& ending, Clock::time_point when);

  /// Rank ended at `when`, of itself: ranks that the launcher stopped are not reported.
  void ended(const Ending& ending, Clock::time_point when);

  /// How long after the first failure ranks may end of themselves: the master, to have its say; and the failing rank,
  /// which may still be closing its files: one that has reported its failure, or that all others blame.
  static constexpr Duration kGrace = 1s;
  static constexpr Duration kGraceOfTheBlamed = 5s;

  bool failed() const { return !failures_.empty(); }
  /// When to stop waiting. Only if failed().
  Clock::time_point deadline() const;
  /// Waiting longer would change nothing: the cause is known, and the master has had its say.
  bool settled() const;
  /// The first rank that failed, or said so, and does not blame another; else the first. Only if failed().
  const Ending& cause() const;
  /// The master failed by itself and not of another's death: its own message is on the terminal already.
  bool master_spoke() const;

 private:
  std::vector<Ending> failures_;
  Clock::time_point first_failure_;
  bool master_ended_ = false;
};

struct Circumstances {
  std::string host;
  int same_error = 0;           ///< other ranks that raised the same
  bool stopped_others = false;  ///< ranks that ran on
  std::string held_by = {};     ///< what may have kept a rank that had not ended from it
};

/// "rank 2 (pid 123 on node07) ended with exit code 3; the other ranks were stopped".
std::string describe(const FirstCause::Ending& ending, const Circumstances& circumstances);

}  // namespace tarantella::launch
