#pragma once
// How the hosts of a job ended, and which of them is the cause.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/verdict.h"

namespace tarantella::launch {

/// Pure: it is told what happened and when. Ranks that failed only because they lost another one are not the cause if
/// there is one.
class Endings {
 public:
  /// All ranks of the node have ended.
  void ended(int node, const Verdict& verdict, Clock::time_point now);
  /// The node launcher, or the host, is gone.
  void lost(int node, const std::string& what, Clock::time_point now);

  bool failed() const { return !failures_.empty(); }
  bool has_lost() const;
  /// When the ranks of the other hosts should be ended; requires failed(). At once if the cause is known and the ranks
  /// of the master's host have ended, or a host is lost. Else there is time for the host that is the cause to tell, and
  /// for the master to print its own error, which may be the same.
  Clock::time_point end_others_at() const;
  /// The job's end. `interrupted_by` is the signal to the launcher, 0: none.
  Verdict verdict(int interrupted_by) const;

 private:
  struct Failure {
    int node = 0;
    Verdict verdict;
    bool lost = false;
    Clock::time_point when;
  };

  const Failure* cause() const;

  std::vector<Failure> failures_;
  bool master_ended_ = false;  ///< with all ranks of its host
};

}  // namespace tarantella::launch
