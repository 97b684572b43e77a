#pragma once
// The commands that may be given in place of a script, such as tarantella verify.

#include <string>
#include <vector>

namespace tarantella::launch {

struct Subcommand {
  const char* name;
  const char* module;  ///< the Python module that runs it; null: prints the help text, and takes no arguments
  const char* summary;  ///< one line for the help text
};

/// A script with such a name runs after "--".
constexpr Subcommand kSubcommands[] = {
    {"verify", "tarantella.verify", "Compare training on N ranks with training on one process"},
    {"doctor", "tarantella.doctor", "Check this installation and say how to repair what is wrong"},
    {"scaling", "tarantella.scaling", "Measure a script on several numbers of ranks and draw its speed-up"},
    {"horovodrun", "tarantella.horovod.horovodrun", "Run a script with the options of horovodrun"},
    {"help", nullptr, "the options of tarantella"},
};

/// The sub-command of a command line, given without "tarantella"; null: the command line starts a job.
const Subcommand* subcommand_of(const std::vector<std::string>& arguments);

/// Runs it with the arguments after its name: execs Python with its module, or prints the help text. Returns the exit
/// code after the help text, or if the exec fails.
int run_subcommand(const Subcommand& subcommand, const std::vector<std::string>& arguments);

}  // namespace tarantella::launch
