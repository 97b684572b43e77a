#pragma once
// Checks that the script of the command line can be run.

#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// kInvalidArgument, with one line, if `script` is missing, is not a file or cannot be read.
Status check_script(const std::string& script);

/// The same for `script` with its arguments, where `script` may be an option of Python.
Status check_command(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace tarantella::launch
