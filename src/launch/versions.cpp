#include "launch/versions.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace tarantella::launch {
namespace {

constexpr Duration kPatience = 10s;
constexpr char kQuestion[] =
    "import importlib.metadata as m, platform\n"
    "print(platform.python_version(), next((d.version for d in m.distributions(name='tarantella')), ''))";

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

std::string answer_of(const std::string& program, const Environment& environment) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  std::vector<std::string> words{program, "-c", kQuestion}, variables = joined(environment, {});
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return "";
  write_end = Fd();
  std::string answer = read_all(read_end.get(), Deadline::after(kPatience));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return answer;
}

}  // namespace

Versions ask_python(const Command& command, const Environment& environment) {
  const std::string name = command.program.substr(command.program.rfind('/') + 1);
  Versions versions;
  if (!name.starts_with("python")) return versions;
  std::istringstream in(answer_of(command.program, environment));
  in >> versions.python >> versions.tarantella;
  return versions;
}

std::string complaint(const Versions& versions) {
  if (versions.python.empty() || versions.tarantella == TARANTELLA_VERSION) return "";
  if (versions.tarantella.empty())
    return "this Python has no package tarantella; install it there, or name another";
  return text("this Python has tarantella ", versions.tarantella, ", but the launcher is ",
              TARANTELLA_VERSION, "; install one of them again");
}

}  // namespace tarantella::launch
