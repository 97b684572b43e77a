#include "launch/ranks/orphan_reaper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/clock.h"
#include "launch/system/procfs.h"

namespace tarantella::launch {
namespace {

std::set<pid_t> children() {
  // Needs CONFIG_PROC_CHILDREN, which every distribution sets. Without it no child is found or killed.
  const std::string self = std::to_string(::getpid());
  std::ifstream in("/proc/self/task/" + self + "/children");
  std::set<pid_t> pids;
  for (pid_t pid = 0; in >> pid;) pids.insert(pid);
  return pids;
}

}  // namespace

OrphanReaper::OrphanReaper() : preexisting_(children()) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

int OrphanReaper::sweep(const std::set<pid_t>& ranks, pid_t pgid) const {
  const std::set<pid_t> alive = in_process_group(pgid, ranks);
  for (const pid_t pid : alive) ::kill(pid, SIGKILL);
  return static_cast<int>(alive.size());
}

void OrphanReaper::await_resource_trackers(const std::set<pid_t>& ranks, pid_t pgid) const {
  for (const Deadline deadline = Deadline::after(kResourceTrackerLimit); !deadline.passed(); ::usleep(1000)) {
    std::set<pid_t> others = in_process_group(pgid, ranks);
    if (std::erase_if(others, is_resource_tracker) == 0) return;
    for (const pid_t pid : others) ::kill(pid, SIGKILL);
  }
}

std::set<pid_t> OrphanReaper::in_process_group(pid_t pgid, const std::set<pid_t>& ranks) const {
  std::set<pid_t> alive;
  for (const pid_t pid : children()) {
    if (ranks.contains(pid) || preexisting_.contains(pid)) continue;
    if (pgid != 0 && ::getpgid(pid) != pgid) continue;
    if (::waitpid(pid, nullptr, WNOHANG) != pid) alive.insert(pid);
  }
  return alive;
}

void OrphanReaper::reap(const std::set<pid_t>& ranks) {
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    if (ranks.contains(ended.si_pid) || ::waitpid(ended.si_pid, nullptr, WNOHANG) <= 0) return;
  }
}

}  // namespace tarantella::launch
