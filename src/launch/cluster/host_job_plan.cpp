#include "launch/cluster/host_job_plan.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/network.h"
#include "launch/cli/job_variables.h"
#include "launch/cli/script.h"
#include "launch/cluster/remote_launcher.h"
#include "launch/hosts/allocation.h"
#include "launch/ranks/rank_environment.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// The environment of the ranks here: the coordinator's, except for what Slurm sets on this host.
Environment environment_here(const JobSpec& spec, const Environment& agent_environment) {
  Environment environment = applied(agent_environment, spec.environment);
  for (const auto& [name, value] : agent_environment) {
    if (name.starts_with("SLURM") ||
        (name == "CUDA_VISIBLE_DEVICES" && agent_environment.contains("SLURM_PROCID"))) {
      environment.insert_or_assign(name, value);
    }
  }
  return environment;
}

bool is_for_first_rank(const std::string& name) {
  return is_remote_launcher_variable(name) || name.starts_with("I_MPI_") || name.starts_with("HYDRA");
}

std::string job_marker_of(const HostJobPlan& host_plan) {
  return text(host_plan.spec.job_id, '.', host_plan.index);
}

EnvironmentOverrides overrides_of(const HostJobPlan& host_plan, int rank, const std::string& nodes,
                                  const std::string& folder) {
  const JobSpec& spec = host_plan.spec;
  EnvironmentOverrides overrides =
      overrides_for(rank, host_plan.placement, spec.options, spec.job_id, folder, host_plan.environment);
  overrides["TNT_RANK"] = std::to_string(host_plan.assignment().first_rank + rank);
  overrides["TNT_SIZE"] = std::to_string(spec.ranks());
  overrides[kJobMarkerVariable] = job_marker_of(host_plan);
  if (spec.assignments.size() > 1) {
    overrides["TNT_NODES"] = nodes;
    overrides["TNT_TRANSPORT"] = spec.mpi_library;
    if (!host_plan.environment.contains(kDeviceVariable) && !host_plan.network_interface.empty())
      overrides[kDeviceVariable] = host_plan.network_interface;
  }
  for (const auto& [name, value] : host_plan.agent_environment) {
    if (rank == 0 && is_for_first_rank(name)) overrides.emplace(name, value);
  }
  return overrides;
}

}  // namespace

LocalJobSpec HostJobPlan::local_spec(const timeline::Memory& timelines, int pmi_fd) const {
  LocalJobSpec local{.options = spec.options,
                     .command = spec.command,
                     .environment = environment,
                     .placement = placement,
                     .job_marker = job_marker_of(*this),
                     .timelines = timelines,
                     .first_rank = assignment().first_rank,
                     .all_ranks = spec.ranks(),
                     .heeds_user_signals = spec.heeds_user_signals,
                     .pmi_fd = pmi_fd};
  std::string nodes;
  for (const HostAssignment& each : spec.assignments) nodes += text(nodes.empty() ? "" : ",", each.ranks);
  const std::string folder = own_folder();
  for (int rank = 0; rank < placement.ranks; ++rank) {
    local.overrides.push_back(overrides_of(*this, rank, nodes, folder));
  }
  return local;
}

Result<HostJobPlan> plan_host_job(const JobSpec& spec, int index, const Environment& agent_environment) {
  if (index < 0 || static_cast<size_t>(index) >= spec.assignments.size()) {
    return Status(Code::kSystem, text("this is host ", index, " of ", spec.assignments.size()));
  }
  if (::chdir(spec.folder.c_str()) != 0) {
    return Status(Code::kSystem, text("cannot enter the working folder '", spec.folder,
                                      "': ", std::strerror(errno), "; it must be there on all hosts"));
  }
  TNT_RETURN_IF_ERROR(check_command(spec.options.script, spec.options.arguments));
  if (!is_program(spec.command.program)) {
    return Status(Code::kSystem, text("cannot run '", printable(spec.command.program),
                                      "', which runs the script on other hosts; "
                                      "install the same environment at the same place on all hosts"));
  }
  HostJobPlan host_plan{.spec = spec,
                        .agent_environment = agent_environment,
                        .index = index,
                        .environment = environment_here(spec, agent_environment)};
  host_plan.placement = place(host_plan.assignment().ranks, spec.explicit_count, spec.options,
                              gpus_here(host_plan.environment));
  return host_plan;
}

}  // namespace tarantella::launch
