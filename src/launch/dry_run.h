#pragma once
// What --dry-run shows.

#include <string>
#include <vector>

#include "launch/command.h"
#include "launch/environment.h"
#include "launch/placement.h"
#include "launch/versions.h"

namespace tarantella::launch {

/// Versions, and a few lines per rank: its cores, GPU and memory, the additions to its environment, and its command.
/// `first`: the number of the first rank of this host.
std::string describe_placement(const Placement& placement, const Command& command,
                               const std::vector<Additions>& additions, const Versions& versions,
                               int first = 0);

/// What the script's `--batch_size` (or `--batch-size`) is for each of `ranks`, in one line. Whether it is the global
/// batch or that of a rank is the script's, so the line says both; `--batch-size-per-replica` says it itself. Empty if
/// `arguments`, the script's, have no such number.
std::string describe_batch(const std::vector<std::string>& arguments, int ranks);

/// `words` quoted as one line, which a shell splits into the same words.
std::string shell_quoted(const std::vector<std::string>& words);

/// "NAME=value " for each, as a shell takes them before a command.
std::string shell_assignments(const Additions& variables);

}  // namespace tarantella::launch
