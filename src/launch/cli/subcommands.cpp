#include "launch/cli/subcommands.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>

#include "launch/cli/option_table.h"
#include "launch/cli/script_command.h"
#include "launch/system/environment.h"
#include "launch/system/message.h"
#include "launch/system/program.h"

namespace tarantella::launch {

const Subcommand* subcommand_of(const std::vector<std::string>& arguments) {
  const auto* found =
      std::find_if(std::begin(kSubcommands), std::end(kSubcommands), [&](const Subcommand& each) {
        return !arguments.empty() && arguments[0] == each.name &&
               (each.module != nullptr || arguments.size() == 1);
      });
  return found == std::end(kSubcommands) ? nullptr : found;
}

int run_subcommand(const Subcommand& subcommand, const std::vector<std::string>& arguments) {
  if (subcommand.module == nullptr) {
    print_help();
    return 0;
  }
  // The module runs this executable for each of its jobs.
  const std::string folder = own_folder();
  std::vector<std::string> module_arguments{folder + "/tarantella"};
  module_arguments.insert(module_arguments.end(), arguments.begin(), arguments.end());
  const Result<Command> command =
      command_for_module(subcommand.module, module_arguments, folder,
                         value_of(current_environment(), "PATH").value_or(kDefaultPath));
  if (!command.ok()) {
    print_message(command.status().message());
    return kCannotRun;
  }
  ::unsetenv("TNT_TIMELINE");  // NOLINT(concurrency-mt-unsafe): for one job, and the module runs several
  std::vector<char*> argv;
  for (const std::string& argument : command.value().argv)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(command.value().program.c_str(), argv.data());
  print_message(Status::system("cannot start " + command.value().program, errno).message());
  return kCannotRun;
}

}  // namespace tarantella::launch
