#pragma once
// What --dry-run shows.

#include <string>
#include <vector>

#include "launch/command.h"
#include "launch/environment.h"
#include "launch/placement.h"

namespace tarantella::launch {

/// A few lines a rank: its cores, what is added to its environment, its command.
std::string describe_placement(const Placement& placement, const Command& command,
                               const std::vector<Additions>& additions);

/// `words` as one line that a shell reads back as they are.
std::string shell_quoted(const std::vector<std::string>& words);

}  // namespace tarantella::launch
