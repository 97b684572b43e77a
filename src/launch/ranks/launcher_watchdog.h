#pragma once
// A process that watches the launcher, and kills the job when the launcher has died: also after SIGKILL.

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// Whether the process is such a watchdog. It kills its own job and ends by itself.
bool is_launcher_watchdog(pid_t pid);

/// Owns a process that waits at a pipe until the launcher ends, however it ends. That process then kills every process
/// of the launcher's effective user that has the job's marker, in any session, and the process groups of ranks in which
/// it finds one. It misses processes of another user, and processes outside these groups that have emptied their
/// environment. It has a session of its own and blocks all signals, so that Ctrl-C, a closed terminal or a batch
/// system's signal to all processes do not end it. It keeps no stream or file of the user open.
class LauncherWatchdog {
 public:
  /// Starts the process. Call it before any rank is started and before OrphanReaper is made. `job_id` is the value of
  /// the marker. `record_file` is the job's record, which the process removes when it has killed the job; empty: none.
  /// Errors: kSystem.
  static Result<LauncherWatchdog> start(const std::string& job_id, int ranks, const std::string& record_file);

  /// Announces that rank `rank` leads process group `pgid`; 0: that it no longer does. Announce the latter before the
  /// leader is reaped, since another process may get its number afterwards.
  void set_process_group(int rank, pid_t pgid);
  /// Ends the process and reaps it: the job has ended. A watchdog that is destroyed without this call kills the job.
  void stop();

 private:
  LauncherWatchdog() = default;

  Fd alive_;    ///< write end of the pipe
  Fd process_;  ///< pidfd
  pid_t pid_ = -1;
  Mapping pgids_;  ///< one pid_t per rank, shared with the process
};

}  // namespace tarantella::launch
