#include "launch/cluster/remote_launcher_process.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace tarantella::launch {
namespace {

constexpr Duration kFinalOutput = 300ms;
constexpr Duration kDies = 5s;  // after SIGKILL

}  // namespace

Status RemoteLauncherProcess::start(const Command& command, const std::vector<std::string>& environment,
                                    const InheritedSettings& inherited) {
  null_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request;
  request.command = &command;
  request.environment = &environment;
  request.inherited = &inherited;
  request.in = Stdio::kDevNull;
  request.out = Stdio::kPipe;
  request.err = Stdio::kPipe;
  request.null_fd = null_.get();
  Result<Process> process = Process::spawn(request);
  if (!process.ok()) return process.status();
  process_ = std::move(process).value();
  return {};
}

void RemoteLauncherProcess::watch(Poller& poller) {
  poller.add(process_.out(), POLLIN, [this] { read(); });
  poller.add(process_.err(), POLLIN, [this] { read(); });
  if (!exit_) poller.add(process_.pidfd(), POLLIN);
}

void RemoteLauncherProcess::read() {
  for (const bool is_err : {false, true}) {
    char buffer[4096];
    const int fd = is_err ? process_.err() : process_.out();
    if (fd < 0) continue;
    const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (bytes <= 0) {
      is_err ? process_.close_err() : process_.close_out();
      continue;
    }
    const std::string_view output(buffer, static_cast<size_t>(bytes));
    output_tail_.append(output);
    on_output_(output);
  }
}

std::optional<Exit> RemoteLauncherProcess::ended() {
  if (exit_) return std::nullopt;
  exit_ = process_.ended();
  const Deadline rest = Deadline::after(kFinalOutput);
  while (exit_ && (process_.out() >= 0 || process_.err() >= 0) && !rest.passed()) {
    pollfd fds[] = {{process_.out(), POLLIN, 0}, {process_.err(), POLLIN, 0}};
    (void)::poll(fds, 2, rest.left_ms());
    read();
  }
  return exit_;
}

void RemoteLauncherProcess::end(Duration timeout, Duration timeout_for_shells,
                                const OrphanReaper& orphan_reaper) {
  const Deadline deadline = Deadline::after(timeout);
  while (!exit_ && !deadline.passed()) {
    pollfd fds[] = {{process_.pidfd(), POLLIN, 0}, {process_.out(), POLLIN, 0}, {process_.err(), POLLIN, 0}};
    ::poll(fds, 3, std::min(100, deadline.left_ms()));
    read();
    exit_ = process_.ended();
  }
  if (!exit_) process_.signal(SIGKILL);
  const Deadline dies = Deadline::after(kDies);
  while (!process_.ended() && !dies.passed()) ::usleep(1000);
  process_.reap();
  const Deadline shells = Deadline::after(timeout_for_shells);
  while (!orphan_reaper.in_process_group(0, {}).empty() && !shells.passed()) ::usleep(5000);
  const Deadline killed = Deadline::after(1s);
  while (orphan_reaper.sweep({}) > 0 && !killed.passed()) ::usleep(1000);
}

}  // namespace tarantella::launch
