#pragma once
// The part of a job that is to run on one host, as its agent plans it.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cluster/protocol.h"
#include "launch/ranks/local_job.h"

namespace tarantella::launch {

/// What an agent adds to the JobSpec that the coordinator has sent, and what the LocalJobSpec of this host refers to.
/// `spec` and `agent_environment` must outlive it.
struct HostJobPlan {
  const JobSpec& spec;
  const Environment& agent_environment;  ///< of the agent
  int index = 0;
  Environment environment = {};  ///< of all ranks here
  Placement placement = {};
  std::string network_interface = {};  ///< over which the agent reaches the coordinator: eth0

  const HostAssignment& assignment() const { return spec.assignments[static_cast<size_t>(index)]; }
  /// What to run. This plan and `timelines` must outlive it; `pmi_fd` is that of PMI.
  LocalJobSpec local_spec(const timeline::Memory& timelines, int pmi_fd) const;
};

/// The part of the `index`-th host of the job, checked on that host; enters the working folder. Errors, each one
/// line: kInvalidArgument, kSystem.
Result<HostJobPlan> plan_host_job(const JobSpec& spec, int index, const Environment& agent_environment);

}  // namespace tarantella::launch
