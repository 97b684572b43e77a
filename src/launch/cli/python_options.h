#pragma once
// Options of Python in place of a script: `-m package.module`, `-c code`, `-u script.py`.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// The index of the script that Python would run, in `arguments`, of which the first begins with '-'; nullopt if it
/// would run a module, a string or its standard input. kInvalidArgument, with one line, for an argument that is not an
/// option of Python for running something, for an option without its value, and if no script follows. Pure.
Result<std::optional<size_t>> script_after_options(const std::vector<std::string>& arguments);

}  // namespace tarantella::launch
