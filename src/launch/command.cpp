#include "launch/command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/fd.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

bool is_file(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

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

/// Why the Python of the environment whose programs are in `folder` cannot be run; empty if it was to have none.
std::string lost_python(const std::string& folder) {
  for (const char* name : {"python3", "python"}) {
    const std::string python = folder + "/" + name;
    struct stat info{};
    if (::lstat(python.c_str(), &info) != 0) continue;
    char target[PATH_MAX];
    const ssize_t length = ::readlink(python.c_str(), target, sizeof target);
    if (length <= 0) return text("'", python, "' is not a program (chmod +x?)");
    const std::string_view shown(target, static_cast<size_t>(length));
    return text("'", python, "' leads to '", shown,
                "', which cannot be run (was that Python upgraded or removed?)");
  }
  return is_file(folder + "/../pyvenv.cfg") ? text("the virtual environment of '", folder, "' has no python3")
                                            : "";
}

Result<std::string> find_python(const std::string& folder, const std::string& path) {
  std::string python = folder.empty() ? "" : python_in(folder);
  if (!python.empty()) return python;
  const std::string lost = folder.empty() ? "" : lost_python(folder);
  if (!lost.empty()) {
    return Status(Code::kSystem,
                  text(lost, "; create this environment again, or name a Python with --python-interpreter"));
  }
  python = program_in(path, "python3");
  if (python.empty()) return Status(Code::kSystem, "no python3 beside the tarantella executable or in PATH");
  return python;
}

/// The words of --python-interpreter; only the program, if the whole text names one.
std::vector<std::string> words_of(const std::string& interpreter) {
  if (is_program(interpreter)) return {interpreter};
  std::istringstream in(interpreter);
  return {std::istream_iterator<std::string>(in), {}};
}

/// The command that runs a script by the words of --python-interpreter, without the script and its arguments.
Result<Command> interpreter_command(const std::string& interpreter, const std::string& path) {
  Command command;
  command.words = words_of(interpreter);
  const std::string name = command.words.empty() ? "" : command.words[0];
  command.program = name.find('/') == std::string::npos ? program_in(path, name) : name;
  if (name.empty() || !is_program(command.program)) {
    return Status(Code::kSystem,
                  text("option '--python-interpreter' names no program: '", printable(interpreter), "'"));
  }
  command.words[0] = command.program;  // by which Python finds its own library: the ranks' PATH is another
  return command;
}

Result<Command> script_as_program(const std::string& script) {
  if (script.starts_with('-')) {
    return Status(Code::kInvalidArgument,
                  text("an empty '--python-interpreter' needs a program, not '", printable(script), "'"));
  }
  if (!is_program(script)) {
    return Status(Code::kSystem, text("'", printable(script),
                                      "' is not a program (chmod +x?), which an empty "
                                      "'--python-interpreter' needs"));
  }
  return Command{script, {}};
}

Result<Command> python_command(const std::string& script, const std::string& folder,
                               const std::string& path) {
  if (!script.starts_with('-') && runs_itself(script)) return Command{script, {}};
  const Result<std::string> python = find_python(folder, path);
  if (!python.ok()) return python.status();
  return Command{python.value(), {python.value()}};
}

}  // namespace

bool is_program(const std::string& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

std::string program_in(const std::string& path, const std::string& name) {
  for (size_t start = 0; start <= path.size();) {
    const size_t colon = std::min(path.find(':', start), path.size());
    const std::string entry = path.substr(start, colon - start);
    const std::string program = (entry.empty() ? "." : entry) + "/" + name;
    if (is_program(program)) return program;
    start = colon + 1;
  }
  return "";
}

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

Result<Command> command_for(const std::string& script, const std::vector<std::string>& arguments,
                            const std::optional<std::string>& interpreter, const std::string& folder,
                            const std::string& path) {
  Result<Command> command = !interpreter           ? python_command(script, folder, path)
                            : interpreter->empty() ? script_as_program(script)
                                                   : interpreter_command(*interpreter, path);
  if (!command.ok()) return command;
  std::vector<std::string>& words = command.value().words;
  words.push_back(script);
  words.insert(words.end(), arguments.begin(), arguments.end());
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
