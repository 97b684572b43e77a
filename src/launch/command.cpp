#include "launch/command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

#include "base/fd.h"
#include "launch/interpreter.h"
#include "launch/options.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

// What no shell takes for anything else.
constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%";

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

/// For a word that is no file and looks like a command.
std::string hint_for(const std::string& word) {
  if (is_file(word + ".py")) return text("did you mean '", word, ".py'?");
  const std::string command = nearest(word, {"verify", "help"});
  if (!command.empty()) return text("did you mean 'tarantella ", command, "'?");
  return "nor is it a command of tarantella, which has verify and help; see tarantella --help";
}

}  // namespace

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

Status check_script(const std::string& script) {
  const std::string name = printable(script);
  struct stat info{};
  if (::stat(script.c_str(), &info) != 0) {
    const int error = errno;
    if (name.starts_with("python")) {
      return {Code::kInvalidArgument,
              text("no script '", name, "'; name the Python script itself: tarantella -n 2 -- model.py")};
    }
    if (error == ENOENT && name.find_first_of("./") == std::string::npos) {
      return {Code::kInvalidArgument, text("no script '", name, "'; ", hint_for(name))};
    }
    return {Code::kInvalidArgument,
            text("cannot read script '", name, "': ", std::generic_category().message(error))};
  }
  if (S_ISDIR(info.st_mode)) return {Code::kInvalidArgument, text("script '", name, "' is a folder")};
  if (!S_ISREG(info.st_mode)) {
    return {Code::kInvalidArgument, text("script '", name, "' is not a file that every rank can read")};
  }
  const Fd file(::open(script.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    const int error = errno;
    return {Code::kInvalidArgument,
            text("cannot read script '", name, "': ", std::generic_category().message(error))};
  }
  return {};
}

Status check_command(const std::string& script, const std::vector<std::string>& arguments) {
  if (!script.starts_with('-')) return check_script(script);
  std::vector<std::string> words{script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Result<std::optional<size_t>> position = script_behind_options(words);
  if (!position.ok()) return position.status();
  return position.value() ? check_script(words[*position.value()]) : Status();
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

std::string shell_quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char letter : word) {
      if (letter == '\'') {
        line += "'\\''";
      } else {
        line += letter;
      }
    }
    line += '\'';
  }
  return line;
}

}  // namespace tarantella::launch
