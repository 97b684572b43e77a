#pragma once
// From a script to the program that a rank executes.

#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

struct Command {
  std::string program;             ///< path for execve, never searched in PATH
  std::vector<std::string> words;  ///< its argv
};

/// The folder of the running executable; empty if it cannot be read.
std::string own_folder();

/// A script that is executable and begins with "#!" runs itself; any other, and what begins with options of
/// Python, is run by python3 (or python) in `folder`, else by that of `path` (a value of PATH). kSystem where
/// no Python is found.
Result<Command> command_for(const std::string& script, const std::vector<std::string>& arguments,
                            const std::string& folder, const std::string& path);

/// Python (as for a script that does not run itself) with a module of ours: the launcher's sub-commands.
Result<Command> command_for_module(const std::string& module, const std::vector<std::string>& arguments,
                                   const std::string& folder, const std::string& path);

}  // namespace tarantella::launch
