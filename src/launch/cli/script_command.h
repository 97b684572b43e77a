#pragma once
// The program that a rank executes for a script.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/system/program.h"

namespace tarantella::launch {

/// The command that runs `script` with `arguments`. An `interpreter`, split at blanks unless it is the path of a
/// program, runs the script; with an empty one the script is a program. Without one, a script that is executable and
/// begins with "#!" is its own program. Any other script, and a command line that begins with options of Python, is run
/// by python3 (or python) in `folder`, else by the first python3 in `path`, a value of PATH. kSystem if there is no
/// such program, or if that in `folder` is broken; kInvalidArgument if options of Python are to be a program.
Result<Command> command_for(const std::string& script, const std::vector<std::string>& arguments,
                            const std::optional<std::string>& interpreter, const std::string& folder,
                            const std::string& path);

/// The command that runs `module`, a sub-command of the launcher, with the Python that command_for() would find.
Result<Command> command_for_module(const std::string& module, const std::vector<std::string>& arguments,
                                   const std::string& folder, const std::string& path);

}  // namespace tarantella::launch
