#pragma once
// What --dry-run shows.

#include <string>
#include <vector>

#include "launch/command.h"
#include "launch/environment.h"
#include "launch/plan.h"

namespace tarantella::launch {

/// A few lines a rank: its cores, what is added to its environment, its command.
std::string describe_plan(const Plan& plan, const Command& command, const std::vector<Additions>& additions);

/// "0-3,8,10-11".
std::string ranges(const std::vector<int>& numbers);

}  // namespace tarantella::launch
