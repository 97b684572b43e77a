#pragma once
// The hosts of a job, and how many ranks run on each: decided by options, hostfile and batch system.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cli/options.h"
#include "launch/hosts/allocation.h"
#include "launch/hosts/host_assignments.h"
#include "launch/system/environment.h"
#include "runtime/topology/gpus.h"

namespace tarantella::launch {

struct HostLayout {
  std::string source;  ///< what names the hosts, for messages; empty: nothing, so it is this machine
  std::vector<HostAssignment> assignments;  ///< at least one
  int tasks = 1;                ///< on one host: how many the user has asked the batch system for; else 1
  bool explicit_count = false;  ///< the user has given the number of ranks
  BatchSystem batch = BatchSystem::kNone;  ///< that names the hosts
};

/// Decides where ranks run: on the hosts of --hostfile, else on those of the batch job, else on this machine. `gpus`
/// are those of this machine. Every host is assumed to have as many. If this machine is outside of the batch job, the
/// number comes from Slurm's variables, or from squeue, which gets five seconds. Reads the files that name hosts.
/// kInvalidArgument, with one line.
Result<HostLayout> host_layout_for(const Options& options, const Environment& environment,
                                   const runtime::Gpus& gpus);

/// Whether all ranks of the layout run on this machine. May block while a name is looked up.
bool runs_here(const HostLayout& layout, const Environment& environment);

/// "host node1: ranks 0-3", one line each.
std::string describe_hosts(const HostLayout& layout);

}  // namespace tarantella::launch
