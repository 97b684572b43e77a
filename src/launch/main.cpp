// The `tarantella` executable: runs a sub-command, prints the help, or runs a job.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/option_table.h"
#include "launch/cli/options.h"
#include "launch/cli/subcommands.h"
#include "launch/cluster/agent.h"
#include "launch/cluster/launch_on_hosts.h"
#include "launch/launch.h"
#include "launch/ranks/cleanup.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// Opens descriptors 0 to 2 if they are closed. Else a pipe of the launcher could become the stdout of a rank.
void open_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

int run(int argc, char** argv) {
  open_standard_streams();
  if (is_agent()) return run_agent();
  const std::vector<std::string> arguments(argc > 0 ? argv + 1 : argv, argv + argc);
  if (const Subcommand* subcommand = subcommand_of(arguments)) {
    return run_subcommand(*subcommand, {arguments.begin() + 1, arguments.end()});
  }
  Result<Options> options = parse_options(argc, argv);
  if (!options.ok()) {
    print_message(options.status().message());
    return kUsageError;
  }
  switch (options.value().action) {
    case Action::kHelp:
      print_help();
      return 0;
    case Action::kVersion:
      std::puts("tarantella " TARANTELLA_VERSION);
      return 0;
    case Action::kCleanup:
      return clean_up(options.value());
    case Action::kListMpis:
      return list_mpis();
    default:
      return launch(std::move(options).value());
  }
}

}  // namespace
}  // namespace tarantella::launch

int main(int argc, char** argv) {
  try {
    return tarantella::launch::run(argc, argv);
  } catch (const std::exception& error) {
    tarantella::launch::print_message(std::string("unexpected error: ") + error.what());
    return tarantella::launch::kLaunchError;
  }
}
