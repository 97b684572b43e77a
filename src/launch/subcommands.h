#pragma once
// The words that may stand where a script does: tarantella verify.

#include <string>
#include <vector>

namespace tarantella::launch {

struct Subcommand {
  const char* name;
  const char* module;   ///< the Python module that runs it; null: it prints the help text, and takes no words
  const char* summary;  ///< one line for the help text
};

/// A file of such a name runs behind "--", as any script does.
constexpr Subcommand kSubcommands[] = {
    {"verify", "tarantella.verify", "Compare training on N ranks with training on one process"},
    {"help", nullptr, "the options of tarantella"},
};

/// The sub-command that the command line (without "tarantella") calls; null: it starts a job.
const Subcommand* subcommand_of(const std::vector<std::string>& words);

/// Runs it with the words that follow its name: becomes the Python of its module, or prints the help text. Returns
/// the exit code where there is nothing to become.
int run_subcommand(const Subcommand& subcommand, const std::vector<std::string>& words);

}  // namespace tarantella::launch
