#pragma once
// How the hosts of a job ended, and which of them is the cause.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/ending/job_result.h"

namespace tarantella::launch {

/// Pure: it gets events with their times. Ranks that failed only because they lost another one are not the cause if
/// there is one.
class HostExits {
 public:
  /// All ranks of the host have ended.
  void on_exit(int host, const JobResult& result, Clock::time_point now);
  /// The agent on the host of this name, or that host, is gone. `host` is -1 and `name` empty if mpiexec or srun
  /// is gone, which has started the agents.
  void on_loss(int host, const std::string& name, const std::string& what, Clock::time_point now);

  bool failed() const { return !failures_.empty(); }
  bool has_lost() const;
  /// When the ranks of the other hosts should be ended; requires failed(). At once if the cause is known and the ranks
  /// of rank 0's host have ended, or a host is lost. Else there is time for the host that is the cause to report
  /// it, and for rank 0 to print its own error, which may be the same.
  Clock::time_point end_others_at() const;
  /// The job's end. `interrupted_by` is the signal to the launcher, 0: none. `output` is that of mpiexec or
  /// srun: where it takes all of them down when one is lost, it may name the one.
  JobResult result(int interrupted_by, const std::string& output = {}) const;

 private:
  struct Failure {
    int host = 0;
    JobResult result;
    bool lost = false;
    Clock::time_point when;
  };

  const Failure* cause(const std::string& output = {}) const;

  std::vector<Failure> failures_;
  bool rank_0_ended_ = false;  ///< and all other ranks of its host
};

}  // namespace tarantella::launch
