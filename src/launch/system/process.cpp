#include "launch/system/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "launch/system/message.h"
#include "launch/system/pty.h"
#include "runtime/topology/sockets.h"
#include "runtime/topology/topology.h"

namespace tarantella::launch {
namespace {

struct Pipe {
  Fd read_end, write_end;
};

Result<Pipe> open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::system("pipe2", errno);
  // The launcher's end only: the rank must get an ordinary, blocking stream.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

/// A terminal like that of the launcher's stderr.
Result<Pipe> open_pty() {
  Result<Pty> pty = launch::open_pty(STDERR_FILENO);
  if (!pty.ok()) return pty.status();
  return Pipe{std::move(pty.value().read_end), std::move(pty.value().write_end)};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void report_exec_failure(const SpawnRequest& request, int error) {
  const ExecFailure failure{request.rank, error};
  [[maybe_unused]] const ssize_t written = ::write(request.failure_fd, &failure, sizeof failure);
  ::_exit(kCannotRun);
}

void connect(Stdio stream, int null_fd, const Pipe& pipe, int target) {
  if (stream == Stdio::kDevNull) ::dup2(null_fd, target);
  if (pipe.write_end.valid()) ::dup2(pipe.write_end.get(), target);
}

[[noreturn]] void become_rank(const SpawnRequest& request, const Pipe& out, const Pipe& err, pid_t launcher,
                              char* const* argv, char* const* environment) {
  if (request.own_process_group) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(kCannotRun);
  // A rank runs even if a core has gone since the placement was made.
  if (request.cpus != nullptr) [[maybe_unused]]
    const Status unbound = runtime::bind_to(*request.cpus);
  const Status memory =
      request.numa_nodes == nullptr ? Status() : runtime::bind_memory_to(*request.numa_nodes);
  if (request.in == Stdio::kDescriptor) ::dup2(request.in_fd, STDIN_FILENO);
  connect(request.in, request.null_fd, {}, STDIN_FILENO);
  connect(request.out, request.null_fd, out, STDOUT_FILENO);
  connect(request.err, request.null_fd, err, STDERR_FILENO);
  if (!memory.ok() && request.warns) {
    print_message(text("WARNING: memory of rank ", request.rank, " is not pinned to its socket: ",
                       memory.message(), "; containers need the capability SYS_NICE for it"));
  }
  if (request.report_fd >= 0) ::fcntl(request.report_fd, F_SETFD, 0);
  if (request.extra_fd >= 0) ::fcntl(request.extra_fd, F_SETFD, 0);
  restore(*request.inherited);
  ::execve(request.command->program.c_str(), argv, environment);
  report_exec_failure(request, errno);
}

}  // namespace

Result<Process> Process::spawn(const SpawnRequest& request) {
  Pipe out, err;
  for (auto [stream, pipe] : {std::pair{request.out, &out}, std::pair{request.err, &err}}) {
    if (stream != Stdio::kPipe && stream != Stdio::kTerminal) continue;
    Result<Pipe> opened = stream == Stdio::kPipe ? open_pipe() : open_pty();
    if (!opened.ok()) return opened.status();
    *pipe = std::move(opened).value();
  }
  const std::vector<char*> argv = pointers(request.command->argv);
  const std::vector<char*> environment = pointers(*request.environment);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("fork", errno);
  if (pid == 0) become_rank(request, out, err, launcher, argv.data(), environment.data());

  Process process;
  process.rank_ = request.rank;
  process.pid_ = pid;
  process.has_own_process_group_ = request.own_process_group;
  // Both processes set the group, so that it exists before either goes on. Here it fails once the rank has exec'ed.
  if (request.own_process_group) ::setpgid(pid, pid);
  process.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.pidfd_.valid()) {
    const int error = errno;
    process.signal(SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return no_pidfd(error);
  }
  process.out_ = std::move(out.read_end);
  process.err_ = std::move(err.read_end);
  return process;
}

Status no_pidfd(int error) {
  return Status::system(error == ENOSYS ? "pidfd_open (Linux 5.3 or newer is needed)" : "pidfd_open", error);
}

Status cannot_start(const std::string& what, const Status& cause) {
  return {Code::kSystem, text("cannot start ", what, ": ", cause.message(),
                              "; use fewer ranks or raise the limits (ulimit -u, -n)")};
}

void Process::signal(int number) const { ::kill(has_own_process_group_ ? -pid_ : pid_, number); }

void Process::signal_alone(int number) const { ::kill(pid_, number); }

pid_t Process::pgid() const { return has_own_process_group_ ? pid_ : ::getpgrp(); }

std::optional<Exit> Process::ended() const {
  siginfo_t info{};
  if (!alive()) return std::nullopt;
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return errno == ECHILD ? std::optional(Exit{false, kLaunchError}) : std::nullopt;
  }
  if (info.si_pid != pid_) return std::nullopt;
  return Exit{info.si_code != CLD_EXITED, info.si_status};
}

void Process::reap() {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  // Until it is reaped the dead process keeps its number, so no other process can lead a group of that number.
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && has_own_process_group_)
    ::kill(-pid_, SIGKILL);
  ::waitid(P_PID, id, &info, WEXITED | WNOHANG);
  pidfd_ = Fd();
}

}  // namespace tarantella::launch
