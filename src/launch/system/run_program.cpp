#include "launch/system/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/fd.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"

namespace tarantella::launch {
namespace {

/// What arrives at `fd` until its end or the deadline.
std::string read_all(int fd, Deadline deadline) {
  std::string answer;
  while (!deadline.passed() && answer.size() < 4096) {
    pollfd readable{fd, POLLIN, 0};
    if (::poll(&readable, 1, 100) <= 0) continue;
    char buffer[512];
    const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
    if (bytes <= 0) break;
    answer.append(buffer, static_cast<size_t>(bytes));
  }
  return answer;
}

}  // namespace

std::string run_program(const Command& command, const Environment& environment, Duration timeout,
                        bool with_stderr) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  std::vector<std::string> arguments = command.argv, variables = to_envp(environment, {});
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (with_stderr) {
    ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, command.program.c_str(), &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return "";
  write_end = Fd();
  std::string answer = read_all(read_end.get(), Deadline::after(timeout));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return answer;
}

}  // namespace tarantella::launch
