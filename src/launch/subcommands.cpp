#include "launch/subcommands.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>

#include "launch/command.h"
#include "launch/environment.h"
#include "launch/option_table.h"
#include "launch/say.h"

namespace tarantella::launch {

const Subcommand* subcommand_of(const std::vector<std::string>& words) {
  const auto* found =
      std::find_if(std::begin(kSubcommands), std::end(kSubcommands), [&](const Subcommand& each) {
        return !words.empty() && words[0] == each.name && (each.module != nullptr || words.size() == 1);
      });
  return found == std::end(kSubcommands) ? nullptr : found;
}

int run_subcommand(const Subcommand& subcommand, const std::vector<std::string>& words) {
  if (subcommand.module == nullptr) {
    print_help();
    return 0;
  }
  // The module runs this executable for each of its jobs.
  const std::string folder = own_folder();
  std::vector<std::string> arguments{folder + "/tarantella"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const Result<Command> command = command_for_module(
      subcommand.module, arguments, folder, value_of(current_environment(), "PATH").value_or(kUsualPath));
  if (!command.ok()) {
    say(command.status().message());
    return kCannotRun;
  }
  ::unsetenv("TNT_TIMELINE");  // NOLINT(concurrency-mt-unsafe): for one job, and the module runs several
  std::vector<char*> argv;
  for (const std::string& word : command.value().words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(command.value().program.c_str(), argv.data());
  say(Status::system("cannot start " + command.value().program, errno).message());
  return kCannotRun;
}

}  // namespace tarantella::launch
