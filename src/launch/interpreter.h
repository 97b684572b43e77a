#pragma once
// Options of Python in a script's place: `-m package.module`, `-c code`, `-u script.py`.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::launch {

/// Where among `words`, of which the first begins with '-', the script stands that Python would run; nothing
/// if it runs a module, a string or its standard input. kInvalidArgument and one line where a word is no
/// option of Python with which something runs, lacks its value, or nothing follows.
Result<std::optional<size_t>> script_behind_options(const std::vector<std::string>& words);

}  // namespace tarantella::launch
