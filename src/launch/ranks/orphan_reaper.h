#pragma once
// Processes that ranks leave behind. One whose parent has died becomes a child of the launcher, which ends it.

#include <sys/types.h>

#include <set>

namespace tarantella::launch {

/// Make one per process. It spares children that this process already has when it is made: a shell that has exec'ed the
/// launcher may have had some.
class OrphanReaper {
 public:
  /// From here on, orphans among the descendants become children of this process.
  OrphanReaper();

  /// Where there are resource trackers of Python among the orphans, kills the others, and blocks until the trackers
  /// have removed the shared memory of the dead, and ended: at most kResourceTrackerLimit. Arguments as of sweep().
  void await_resource_trackers(const std::set<pid_t>& ranks, pid_t pgid) const;

  /// Kills all orphans, or those in process group `pgid` if that is not 0, except `ranks`. Returns how many were
  /// alive. Reaps dead ones.
  int sweep(const std::set<pid_t>& ranks, pid_t pgid = 0) const;

  /// The living orphans in process group `pgid` (0: in any), except `ranks`. Reaps dead ones.
  std::set<pid_t> in_process_group(pid_t pgid, const std::set<pid_t>& ranks) const;

  /// Reaps ended children up to the first of `ranks` among them, which is left to the caller: until it is reaped,
  /// further calls find no more.
  static void reap(const std::set<pid_t>& ranks);

 private:
  std::set<pid_t> preexisting_;
};

}  // namespace tarantella::launch
