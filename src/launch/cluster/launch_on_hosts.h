#pragma once
// A job on several hosts, from the plan to the exit code.

#include "launch/ending/job_result.h"
#include "launch/hosts/launch_plan.h"
#include "launch/ranks/snapshot_memory.h"
#include "launch/system/signals.h"

namespace tarantella::launch {

/// One attempt: finds an MPI, starts an agent on each host of the plan, blocks until the ranks have ended, and returns
/// how. Errors before that are printed. With --dry-run it prints the command, and each host checks and prints what it
/// would start. `snapshots` holds what this attempt goes on from, and afterwards the newest that a host has sent; null
/// without restarts.
JobResult launch_on_hosts(const LaunchPlan& plan, Signals& signals, SnapshotMemory* snapshots);

/// Prints for `tarantella doctor` which MPIs there are: lines of four fields with tabs between them (name, mpiexec,
/// library, how it was found), and last "use" with the name of the one that several hosts would use and why, or "none"
/// and why. Returns the exit code.
int list_mpis();

}  // namespace tarantella::launch
