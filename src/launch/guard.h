#pragma once
// Cleans up after a launcher that is killed (SIGKILL), when nobody else can.

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// The variable by which every process of a job is found: ranks have it in their environment, and what they
/// start inherits it. Apart from TNT_JOB_ID, which a rank may take away from its children.
constexpr char kMark[] = "TARANTELLA_JOB";

/// A process that waits at a pipe for the end of the launcher, however it ends, and then kills every process of
/// the launcher's (effective) user that carries the job's mark, also in sessions of its own, and the process groups
/// of the ranks in which it finds one. Missed are a process of another user, and one without the mark (it has emptied
/// its environment) that is in no such group. It has a
/// session of its own, and all signals are blocked in it, so that Ctrl-C, a closed terminal or a batch
/// system's signal to every process leave it alone. It holds no stream and no file of the user's.
class Guard {
 public:
  /// Starts the process; call before any rank is there, and before Orphans counts children. `job_id` is the
  /// mark's value.
  static Result<Guard> start(const std::string& job_id, int ranks);

  /// Rank `rank` leads process group `group`; 0: it no longer does (say so before the leader is collected, after
  /// which the number may be a stranger's).
  void set_group(int rank, pid_t group);
  /// Ends the process and collects it: nothing is left to be guarded. A guard that is dropped without
  /// does its work.
  void dismiss();

 private:
  Guard() = default;

  Fd alive_;    ///< write end of the pipe
  Fd process_;  ///< pidfd
  pid_t pid_ = -1;
  Mapping groups_;  ///< one pid_t a rank, shared with the process
};

}  // namespace tarantella::launch
