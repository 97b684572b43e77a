#include "launch/cli/script_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/fd.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

bool has_shebang(const std::string& script) {
  if (!is_program(script)) return false;
  const Fd file(::open(script.c_str(), O_RDONLY | O_CLOEXEC));
  char magic[2] = {};
  return file.valid() && ::read(file.get(), magic, 2) == 2 && magic[0] == '#' && magic[1] == '!';
}

std::string python_in(const std::string& folder) {
  for (const char* name : {"python3", "python"}) {
    const std::string python = folder + "/" + name;
    if (is_program(python)) return python;
  }
  return "";
}

/// Why the Python of the environment whose programs are in `folder` cannot be run; empty if it was to have none.
std::string why_python_is_broken(const std::string& folder) {
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
  return ::access((folder + "/../pyvenv.cfg").c_str(), F_OK) == 0
             ? text("the virtual environment of '", folder, "' has no python3")
             : "";
}

Result<std::string> find_python(const std::string& folder, const std::string& path) {
  std::string python = folder.empty() ? "" : python_in(folder);
  if (!python.empty()) return python;
  const std::string lost = folder.empty() ? "" : why_python_is_broken(folder);
  if (!lost.empty()) {
    return Status(Code::kSystem,
                  text(lost, "; create this environment again, or name a Python with --python-interpreter"));
  }
  python = program_in(path, "python3");
  if (python.empty()) return Status(Code::kSystem, "no python3 beside the tarantella executable or in PATH");
  return python;
}

/// The value of --python-interpreter, split at blanks unless the whole is the path of a program.
std::vector<std::string> split_interpreter(const std::string& interpreter) {
  if (is_program(interpreter)) return {interpreter};
  std::istringstream in(interpreter);
  return {std::istream_iterator<std::string>(in), {}};
}

/// The command of --python-interpreter, without the script and its arguments.
Result<Command> interpreter_command(const std::string& interpreter, const std::string& path) {
  Command command;
  command.argv = split_interpreter(interpreter);
  const std::string name = command.argv.empty() ? "" : command.argv[0];
  command.program = name.find('/') == std::string::npos ? program_in(path, name) : name;
  if (name.empty() || !is_program(command.program)) {
    return Status(Code::kSystem,
                  text("option '--python-interpreter' names no program: '", printable(interpreter), "'"));
  }
  command.argv[0] = command.program;  // by this path Python finds its own library: the ranks' PATH is another
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
  if (!script.starts_with('-') && has_shebang(script)) return Command{script, {}};
  const Result<std::string> python = find_python(folder, path);
  if (!python.ok()) return python.status();
  return Command{python.value(), {python.value()}};
}

}  // namespace

Result<Command> command_for(const std::string& script, const std::vector<std::string>& arguments,
                            const std::optional<std::string>& interpreter, const std::string& folder,
                            const std::string& path) {
  Result<Command> command = !interpreter           ? python_command(script, folder, path)
                            : interpreter->empty() ? script_as_program(script)
                                                   : interpreter_command(*interpreter, path);
  if (!command.ok()) return command;
  std::vector<std::string>& argv = command.value().argv;
  argv.push_back(script);
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return command;
}

Result<Command> command_for_module(const std::string& module, const std::vector<std::string>& arguments,
                                   const std::string& folder, const std::string& path) {
  const Result<std::string> python = find_python(folder, path);
  if (!python.ok()) return python.status();
  Command command{python.value(), {python.value(), "-m", module}};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace tarantella::launch
