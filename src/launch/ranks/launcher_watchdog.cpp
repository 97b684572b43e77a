#include "launch/ranks/launcher_watchdog.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launch/cli/job_variables.h"
#include "launch/system/process.h"
#include "launch/system/procfs.h"

namespace tarantella::launch {
namespace {

constexpr char kName[] = "tnt-guard";  // `killall tarantella` must not find it; at most 15 letters
// A process that SIGKILL does not end is stuck in the kernel.
constexpr Duration kGiveUpAfter = 10s;

/// Kills the process if it belongs to this user and has the marker, and its group if that is one of `pgids`. Spares the
/// watchdogs of jobs inside this one: they kill their own job and end by themselves. With `spares_trackers` it
/// spares resource trackers, and so kills no group. Returns whether one was found.
bool kill_if_marked(pid_t pid, std::span<const pid_t> pgids, const std::string& entry, bool spares_trackers) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // keeps the number from reuse
  const std::string folder = text("/proc/", pid);
  struct stat owner{};
  if (!process.valid() || ::stat(folder.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return false;
  if (!has_variable(pid, entry)) return false;
  if (is_launcher_watchdog(pid)) return false;
  if (spares_trackers && is_resource_tracker(pid)) return true;
  const pid_t pgid = ::getpgid(pid);
  if (!spares_trackers && pgid > 0 && std::find(pgids.begin(), pgids.end(), pgid) != pgids.end())
    ::kill(-pgid, SIGKILL);
  return ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

int kill_marked(std::span<const pid_t> pgids, const std::string& entry, bool spares_trackers) {
  int killed = 0;
  for (const pid_t pid : all_processes()) {
    if (pid != ::getpid() && kill_if_marked(pid, pgids, entry, spares_trackers)) ++killed;
  }
  return killed;
}

bool has_resource_tracker(const std::string& entry) {
  const std::vector<pid_t> all = all_processes();
  return std::any_of(all.begin(), all.end(),
                     [&](pid_t pid) { return is_resource_tracker(pid) && has_variable(pid, entry); });
}

/// Closes all descriptors except standard input. Lists the open ones, since a container may allow 2^30 of them.
void close_others() {
  std::vector<int> open;
  DIR* descriptors = ::opendir("/proc/self/fd");
  if (descriptors == nullptr) return;
  while (const dirent* found = ::readdir(descriptors)) {
    int fd = 0;
    const char* end = found->d_name + std::strlen(found->d_name);
    if (std::from_chars(found->d_name, end, fd).ptr == end && fd > 0) open.push_back(fd);
  }
  ::closedir(descriptors);
  for (const int fd : open) ::close(fd);
}

[[noreturn]] void run_watchdog(Fd end_of_launcher, Fd alive, std::span<const pid_t> pgids,
                               const std::string& entry, const std::string& record_file) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, kName);
  ::dup2(end_of_launcher.get(), STDIN_FILENO);
  // These first: at the limit of descriptors the others cannot be listed.
  alive = Fd();
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  close_others();
  if (::chdir("/") != 0) ::_exit(1);  // keeps no file system busy
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  // Repeated until none is found: a process that was just forked is not in the list that is being read.
  const Deadline deadline = Deadline::after(kGiveUpAfter);
  const Deadline spared =
      Deadline::after(has_resource_tracker(entry) ? kResourceTrackerLimit : Duration::zero());
  int left = kill_marked(pgids, entry, !spared.passed());
  for (; left > 0 && !deadline.passed(); left = kill_marked(pgids, entry, !spared.passed())) ::usleep(5000);
  if (left == 0 && !record_file.empty()) ::unlink(record_file.c_str());
  ::_exit(0);
}

}  // namespace

bool is_launcher_watchdog(pid_t pid) { return read_file(text("/proc/", pid, "/comm")) == text(kName, '\n'); }

Result<LauncherWatchdog> LauncherWatchdog::start(const std::string& job_id, int ranks,
                                                 const std::string& record_file) {
  LauncherWatchdog watchdog;
  const size_t bytes = static_cast<size_t>(ranks) * sizeof(pid_t);
  void* shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return Status::system("mmap", errno);
  watchdog.pgids_ = Mapping(shared, bytes);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::system("pipe2", errno);
  Fd read_end(ends[0]);
  watchdog.alive_ = Fd(ends[1]);
  watchdog.pid_ = ::fork();
  if (watchdog.pid_ < 0) return Status::system("fork", errno);
  if (watchdog.pid_ == 0) {
    run_watchdog(std::move(read_end), std::move(watchdog.alive_),
                 {static_cast<pid_t*>(shared), static_cast<size_t>(ranks)},
                 text(kJobMarkerVariable, '=', job_id), record_file);
  }
  watchdog.process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, watchdog.pid_, 0)));
  if (watchdog.process_.valid()) return watchdog;
  const int error = errno;
  ::kill(watchdog.pid_, SIGKILL);
  ::waitpid(watchdog.pid_, nullptr, 0);
  return no_pidfd(error);
}

void LauncherWatchdog::set_process_group(int rank, pid_t pgid) {
  reinterpret_cast<pid_t*>(pgids_.bytes().data())[static_cast<size_t>(rank)] = pgid;
}

void LauncherWatchdog::stop() {
  if (!process_.valid()) return;
  ::syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
  ::waitpid(pid_, nullptr, 0);
  process_ = Fd();
  alive_ = Fd();
}

}  // namespace tarantella::launch
