#include "launch/cli/script.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/fd.h"
#include "launch/cli/did_you_mean.h"
#include "launch/cli/python_options.h"
#include "launch/cli/subcommands.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// The cure for `word`, which is not a file and may be a mistyped script or command.
std::string hint_for(const std::string& word) {
  std::error_code error;
  if (std::filesystem::is_regular_file(word + ".py", error)) return text("did you mean '", word, ".py'?");
  std::vector<std::string> names;
  std::string list;
  for (const Subcommand& each : kSubcommands) {
    list += text(names.empty() ? "" : &each == std::end(kSubcommands) - 1 ? " and " : ", ", each.name);
    names.emplace_back(each.name);
  }
  const std::string command = did_you_mean(word, names);
  if (!command.empty()) return text("did you mean 'tarantella ", command, "'?");
  return text("the commands of tarantella are ", list, "; see tarantella --help");
}

}  // namespace

Status check_script(const std::string& script) {
  const std::string name = printable(script);
  if (name == "-")
    return {Code::kInvalidArgument, "a script on stdin would reach rank 0 only; write it to a file"};
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
  std::vector<std::string> python_arguments{script};
  python_arguments.insert(python_arguments.end(), arguments.begin(), arguments.end());
  const Result<std::optional<size_t>> position = script_after_options(python_arguments);
  if (!position.ok()) return position.status();
  return position.value() ? check_script(python_arguments[*position.value()]) : Status();
}

}  // namespace tarantella::launch
