#pragma once
// What --dry-run shows.

#include <string>
#include <vector>

#include "launch/cli/versions.h"
#include "launch/ranks/placement.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"

namespace tarantella::launch {

/// Versions, and a few lines per rank: its cores, GPU and memory, the variables set for it, and its command.
/// `first`: the number of the first rank of this host.
std::string describe_placement(const Placement& placement, const Command& command,
                               const std::vector<EnvironmentOverrides>& overrides, const Versions& versions,
                               int first = 0);

/// What the script's `--batch_size` (or `--batch-size`) is for each of `ranks`, in one line. Whether it is the global
/// batch or that of a rank is the script's, so the line has both; `--batch-size-per-replica` is clear. Empty if
/// `arguments`, the script's, have no such number.
std::string describe_batch(const std::vector<std::string>& arguments, int ranks);

/// `arguments` as one line, quoted so that a shell splits it into the same arguments.
std::string shell_quoted(const std::vector<std::string>& arguments);

/// "NAME=value " for each, as a shell takes them before a command.
std::string shell_assignments(const EnvironmentOverrides& variables);

}  // namespace tarantella::launch
