#pragma once
// A job on several hosts, from the plan to the exit code.

#include <string>

#include "launch/command.h"
#include "launch/environment.h"
#include "launch/hosts/plan.h"
#include "launch/options.h"

namespace tarantella::launch {

/// Finds an MPI, starts a node launcher on each host of the plan, blocks until the job has ended, and returns the exit
/// code, as launch() does. `command` runs the script, with what is on this host; `user` is an environment after
/// complete(); `folder` is that of this executable. With --dry-run it prints the command, and each host checks and
/// prints what it would start.
int launch_on_hosts(const Plan& plan, const Options& options, const Command& command, const Environment& user,
                    const std::string& folder);

/// Prints for `tarantella doctor` which MPIs there are: lines of four fields with tabs between them (name, mpiexec,
/// library, how it was found), and last "use" with the name of the one that several hosts would use and why, or "none"
/// and why. Returns the exit code.
int list_mpis();

}  // namespace tarantella::launch
