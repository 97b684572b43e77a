#pragma once
// The file of --hostfile.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/hosts/hosts.h"

namespace tarantella::launch {

/// Reads a hostfile: on each line a name, or several with ranges (see expand_hostlist), and then, on every line or on
/// none, slots=N. '#' begins a comment. Names are unique and all hosts have the same slots, because the hosts of a job
/// must be alike. At least one host. `name` is the file's, for messages. kInvalidArgument with one line that names
/// file, line and column. Pure.
Result<std::vector<Host>> parse_hostfile(std::string_view content, const std::string& name);

/// Reads the file `path`, which may be a pipe. Blocks while the file does. kInvalidArgument, with one line, if it
/// cannot be read or is wrong.
Result<std::vector<Host>> read_hostfile(const std::string& path);

}  // namespace tarantella::launch
