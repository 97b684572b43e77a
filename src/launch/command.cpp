#include "launch/command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/fd.h"

namespace tarantella::launch {
namespace {

bool is_file(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_program(const std::string& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

bool runs_itself(const std::string& script) {
  if (!is_program(script)) return false;
  const Fd file(::open(script.c_str(), O_RDONLY | O_CLOEXEC));
  char mark[2] = {};
  return file.valid() && ::read(file.get(), mark, 2) == 2 && mark[0] == '#' && mark[1] == '!';
}

std::string python_in(const std::string& folder) {
  for (const char* name : {"python3", "python"}) {
    const std::string python = folder + "/" + name;
    if (is_program(python)) return python;
  }
  return "";
}

Result<std::string> find_python(const std::string& folder, const std::string& path) {
  std::string python = folder.empty() ? "" : python_in(folder);
  for (size_t start = 0; python.empty() && start <= path.size();) {
    const size_t colon = std::min(path.find(':', start), path.size());
    const std::string entry = path.substr(start, colon - start);
    if (is_program((entry.empty() ? "." : entry) + "/python3")) {
      python = (entry.empty() ? "." : entry) + "/python3";
    }
    start = colon + 1;
  }
  if (python.empty()) return Status(Code::kSystem, "no python3 beside the tarantella executable or in PATH");
  return python;
}

}  // namespace

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

Result<Command> command_for(const std::string& script, const std::vector<std::string>& arguments,
                            const std::string& folder, const std::string& path) {
  Command command;
  if (!script.starts_with('-') && runs_itself(script)) {
    command.program = script;
  } else {
    const Result<std::string> python = find_python(folder, path);
    if (!python.ok()) return python.status();
    command.program = python.value();
    command.words.push_back(command.program);
  }
  command.words.push_back(script);
  command.words.insert(command.words.end(), arguments.begin(), arguments.end());
  return command;
}

Result<Command> command_for_module(const std::string& module, const std::vector<std::string>& arguments,
                                   const std::string& folder, const std::string& path) {
  const Result<std::string> python = find_python(folder, path);
  if (!python.ok()) return python.status();
  Command command{python.value(), {python.value(), "-m", module}};
  command.words.insert(command.words.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace tarantella::launch
