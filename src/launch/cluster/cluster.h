#pragma once
// A job on several hosts, from the plan to the exit code.

#include <string>

#include "launch/environment.h"
#include "launch/hosts/plan.h"
#include "launch/options.h"

namespace tarantella::launch {

/// Finds an MPI, starts a node launcher on each host of the plan, blocks until the job has ended, and returns the exit
/// code, as launch() does. `user` is an environment after complete(); `folder` that of this executable. With --dry-run it
/// prints the command instead.
int launch_on_hosts(const Plan& plan, const Options& options, const Environment& user,
                    const std::string& folder);

}  // namespace tarantella::launch
