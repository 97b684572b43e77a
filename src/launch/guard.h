#pragma once
// Cleans up after a launcher that is killed by SIGKILL.

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// The variable that marks every process of a job: ranks have it in their environment, and processes that they start
/// inherit it. It is not TNT_JOB_ID, which a rank may remove for its children.
constexpr char kMark[] = "TARANTELLA_JOB";

/// Whether the process is the guard of a job. It cleans up its own job and ends by itself.
bool is_guard(pid_t pid);

/// Owns a process that waits at a pipe until the launcher ends, however it ends. That process then kills every process
/// of the launcher's effective user that has the job's mark, in any session, and the process groups of ranks in which
/// it finds one. It misses processes of another user, and processes outside these groups that have emptied their
/// environment. It has a session of its own and blocks all signals, so that Ctrl-C, a closed terminal or a batch
/// system's signal to all processes do not end it. It keeps no stream or file of the user open.
class Guard {
 public:
  /// Starts the process. Call it before any rank is started and before Orphans is made. `job_id` is the value of the
  /// mark. `record` is a file that the process removes when it has killed the job; empty: none. Errors: kSystem.
  static Result<Guard> start(const std::string& job_id, int ranks, const std::string& record);

  /// Announces that rank `rank` leads process group `group`; 0: that it no longer does. Announce the latter before the
  /// leader is collected, since another process may get its number afterwards.
  void set_group(int rank, pid_t group);
  /// Ends the process and collects it: the job has ended. A guard that is destroyed without this call kills the job.
  void dismiss();

 private:
  Guard() = default;

  Fd alive_;    ///< write end of the pipe
  Fd process_;  ///< pidfd
  pid_t pid_ = -1;
  Mapping groups_;  ///< one pid_t per rank, shared with the process
};

}  // namespace tarantella::launch
