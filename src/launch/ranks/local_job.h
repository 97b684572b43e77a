#pragma once
// The ranks of this machine, from what they should run to how they ended: a whole job, or the part of one host.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cli/options.h"
#include "launch/ending/job_result.h"
#include "launch/output/frontend.h"
#include "launch/ranks/placement.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"
#include "launch/system/signals.h"
#include "timeline/memory.h"

namespace tarantella::launch {

/// What a Job is to run on this machine. It refers to what its maker owns: LocalJobPlan (launch.cpp) for a job on this
/// machine alone, HostJobPlan for an agent. Owns only the members that are no references.
struct LocalJobSpec {
  const Options& options;
  const Command& command;
  const Environment& environment;  ///< that all ranks have
  const Placement& placement;
  std::vector<EnvironmentOverrides> overrides = {};  ///< of `environment`, one per rank
  std::string job_marker =
      {};  ///< the value of kJobMarkerVariable for all processes of the job on this machine
  const timeline::Memory& timelines;
  int first_rank = 0;              ///< of this machine, counted in the job
  int all_ranks = 0;               ///< of the job, also on other machines
  bool heeds_user_signals = true;  ///< false: SIGUSR1 and SIGUSR2 come from the MPI that started this process
  int pmi_fd = -1;  ///< of the MPI's process manager, inherited by the first rank here; -1: none

  bool has_ranks_elsewhere() const { return all_ranks > placement.ranks; }
};

/// Opens the logs, starts the watchdog and the ranks, and blocks until all have ended. Leaves no process behind. An
/// error is one that kept the job from starting before any rank was; what keeps a rank from starting is in the result.
Result<JobResult> run_local_job(const LocalJobSpec& spec, Signals& signals, Frontend& frontend);

}  // namespace tarantella::launch
