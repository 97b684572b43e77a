#pragma once
// Processes that ranks leave behind. One whose parent has died becomes a child of the launcher, which ends it.

#include <sys/types.h>

#include <set>

namespace tarantella::launch {

/// Make one per process. It spares children that this process already has when it is made: a shell that has exec'ed the
/// launcher may have had some.
class Orphans {
 public:
  /// From here on, orphans among the descendants become children of this process.
  Orphans();

  /// Where there are resource trackers of Python among the orphans, kills the others, and blocks for at most a second
  /// until the trackers have removed the shared memory of the dead, and ended. Arguments as of sweep().
  void await_resource_trackers(const std::set<pid_t>& ranks, pid_t group) const;

  /// Kills all orphans, or those in process group `group` if that is not 0, except `ranks`. Returns how many were
  /// alive. Collects dead ones.
  int sweep(const std::set<pid_t>& ranks, pid_t group = 0) const;

  /// The living orphans in process group `group` (0: in any), except `ranks`. Collects dead ones.
  std::set<pid_t> in_group(pid_t group, const std::set<pid_t>& ranks) const;

  /// Collects ended children up to the first of `ranks` among them, which is left to the caller: until it is collected,
  /// further calls find no more.
  static void collect(const std::set<pid_t>& ranks);

 private:
  std::set<pid_t> older_;
};

}  // namespace tarantella::launch
