#pragma once
// The hosts of a job, and how many ranks run on each: decided by options, hostfile and batch system.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/environment.h"
#include "launch/hosts/allocation.h"
#include "launch/hosts/layout.h"
#include "launch/options.h"
#include "runtime/topology/gpus.h"

namespace tarantella::launch {

struct Plan {
  std::string source;             ///< who named the hosts, for messages; empty: nobody, so it is this machine
  std::vector<HostShare> shares;  ///< at least one
  int tasks = 1;                  ///< of the batch job on one host, that the user asked for
  bool chosen = false;            ///< the user has said how many ranks there are
  BatchSystem batch = BatchSystem::kNone;  ///< which has named the hosts
};

/// Decides where ranks run: on the hosts of --hostfile, else on those of the batch job, else on this machine. `gpus`
/// are those of this machine. All hosts are alike, also this one, unless it is outside of the batch job: then Slurm
/// tells the GPUs of a host, by its variables or by squeue, which is awaited for five seconds. Reads the files that
/// name hosts. kInvalidArgument, with one line.
Result<Plan> plan_for(const Options& options, const Environment& user, const runtime::Gpus& gpus);

/// Whether all ranks of the plan run on this machine. May block while a name is looked up.
bool runs_here(const Plan& plan, const Environment& user);

/// "host node1: ranks 0-3", one line each.
std::string describe_hosts(const Plan& plan);

}  // namespace tarantella::launch
