#pragma once
// The program that a rank executes for a script.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

struct Command {
  std::string program;             ///< a path for execve, not searched in PATH
  std::vector<std::string> words;  ///< its argv
};

/// The folder of the running executable; empty if it cannot be read.
std::string own_folder();

/// Whether there is a file that this process may execute.
bool is_program(const std::string& path);

/// The first program of this name in `path`, a value of PATH; empty if there is none.
std::string program_in(const std::string& path, const std::string& name);

/// The command that runs `script` with `arguments`. With an `interpreter`, its words run the script (a path with blanks
/// is one word); an empty one says that the script is a program. Without one, a script that is executable and begins
/// with "#!" is its own program; any other script, and a command line that begins with options of Python, is run by
/// python3 (or python) in `folder`, else by the first python3 in `path`, a value of PATH. kSystem if there is no such
/// program, or if that in `folder` is broken; kInvalidArgument if options of Python are to be a program.
Result<Command> command_for(const std::string& script, const std::vector<std::string>& arguments,
                            const std::optional<std::string>& interpreter, const std::string& folder,
                            const std::string& path);

/// The command that runs `module`, a sub-command of the launcher, with the Python that command_for() would find.
Result<Command> command_for_module(const std::string& module, const std::vector<std::string>& arguments,
                                   const std::string& folder, const std::string& path);

}  // namespace tarantella::launch
