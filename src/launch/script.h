#pragma once
// Whether there is something to run: what the user named as the script.

#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// kInvalidArgument and one line when `script` cannot be run by anybody: missing, a folder, unreadable.
Status check_script(const std::string& script);

/// The same for a command line, which may begin with options of Python.
Status check_command(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace tarantella::launch
