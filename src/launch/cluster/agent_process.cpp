#include "launch/cluster/agent_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// Waits between mpiexec and the agent, its child: forwards signals, and returns the child's exit code.
int forward_signals_until_exit(pid_t child, const sigset_t& all) {
  for (;;) {
    siginfo_t info{};
    if (::sigwaitinfo(&all, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      ::kill(child, info.si_signo);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
}

}  // namespace

int close_leaked_descriptors(const Environment& environment) {
  const std::string value = stripped_value(environment, "PMI_FD");
  int pmi = -1;
  std::from_chars(value.data(), value.data() + value.size(), pmi);
  std::vector<int> open;
  if (DIR* descriptors = ::opendir("/proc/self/fd"); descriptors != nullptr) {
    while (const dirent* found = ::readdir(descriptors)) {
      int fd = 0;
      const char* end = found->d_name + std::strlen(found->d_name);
      if (std::from_chars(found->d_name, end, fd).ptr == end && fd > STDERR_FILENO && fd != pmi)
        open.push_back(fd);
    }
    ::closedir(descriptors);
  }
  for (const int fd : open) ::close(fd);
  if (pmi > STDERR_FILENO && ::fcntl(pmi, F_SETFD, FD_CLOEXEC) == 0) return pmi;
  return -1;
}

std::optional<int> continue_in_child() {
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child > 0) return forward_signals_until_exit(child, all);
  if (child == 0) {
    ::setsid();
    ::signal(SIGHUP, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGHUP);
    if (::getppid() != parent) ::_exit(kLaunchError);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return std::nullopt;
}

}  // namespace tarantella::launch
