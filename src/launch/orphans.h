#pragma once
// What ranks leave behind: a process whose parent has died becomes a child of the launcher, which ends it.

#include <sys/types.h>

#include <set>

namespace tarantella::launch {

/// One a process. Processes that were children of this one before (a shell that exec'ed the launcher may have
/// had some) are left alone.
class Orphans {
 public:
  /// From now on orphans of descendants come to this process.
  Orphans();

  /// Kills orphans, those in process group `group` only if that is not 0. `ranks` are spared. Returns how
  /// many were alive. Collects dead ones.
  int sweep(const std::set<pid_t>& ranks, pid_t group = 0) const;

  /// The living orphans in process group `group` (0: in any), but for `ranks`. Collects dead ones.
  std::set<pid_t> in_group(pid_t group, const std::set<pid_t>& ranks) const;

  /// Collects children that have ended, up to the first of `ranks` among them: its status is left to others,
  /// who must take it before the next call finds more.
  static void collect(const std::set<pid_t>& ranks);

 private:
  std::set<pid_t> older_;
};

}  // namespace tarantella::launch
