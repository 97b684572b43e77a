#include "launch/cluster/launch_on_hosts.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "launch/cli/job_variables.h"
#include "launch/cluster/coordinator.h"
#include "launch/cluster/host_timelines.h"
#include "launch/cluster/mpi.h"
#include "launch/cluster/remote_launcher.h"
#include "launch/ranks/dry_run.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

std::string describe_launch(const HostLayout& layout, const RemoteLauncher& remote) {
  const HostAssignment& last = layout.assignments.back();
  const int ranks = last.first_rank + last.ranks;
  return text(layout.source, ": ", ranks, ranks == 1 ? " rank on " : " ranks on ", layout.assignments.size(),
              layout.assignments.size() == 1 ? " host" : " hosts", ", started by ", remote.description);
}

std::string join(const std::vector<std::string>& strings, char separator) {
  std::string all;
  for (const std::string& string : strings) all += (all.empty() ? "" : std::string(1, separator)) + string;
  return all;
}

/// The seconds in `value`, or `otherwise` if it has none: the ranks refuse a variable that is wrong.
Duration seconds_in(const std::string& value, Duration otherwise) {
  char* end = nullptr;
  const double seconds = std::strtod(value.c_str(), &end);
  return value.empty() || *end != '\0' || !(seconds > 0) ? otherwise : from_seconds(seconds);
}

}  // namespace

JobResult launch_on_hosts(const LaunchPlan& plan, Signals& signals, SnapshotMemory* snapshots) {
  const auto& [options, environment, folder, command, gpus, layout, restarts, through_srun] = plan;
  const Result<Mpi> mpi =
      choose_mpi(find_mpis(environment, folder), stripped_value(environment, "TNT_TRANSPORT"));
  if (!mpi.ok()) return {.code = print_error(mpi.status(), kUsageError)};
  std::vector<std::string> hosts;
  for (const HostAssignment& assignment : layout.assignments) hosts.push_back(assignment.host);
  const std::vector<std::string> addresses = own_addresses(hosts);
  const RemoteLauncher remote =
      remote_launcher_for(layout, mpi.value(), folder + "/tarantella", addresses[0], environment);
  if (options.shows_information()) print_message("INFO: " + describe_launch(layout, remote));
  if (options.action == Action::kDryRun) {
    const std::string lines =
        text("remote launcher: ", remote.description, "\ntransport: ", mpi.value().mpi_library(),
             "\ncommand: ", shell_assignments(remote.environment), shell_quoted(remote.command.argv), '\n');
    if (std::fputs(lines.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return {.code = kLaunchError};
  }
  Result<Listener> listener = Listener::open();
  const Result<std::string> job_id = new_job_id(), secret = new_job_id();
  for (const Status& status : {listener.status(), job_id.status(), secret.status()}) {
    if (!status.ok()) return {.code = print_error(status, kLaunchError)};
  }
  std::error_code error;
  const std::string working_folder = std::filesystem::current_path(error).string();
  if (error) {
    const Status gone(Code::kSystem, "the working folder is gone: " + error.message());
    return {.code = print_error(gone, kLaunchError)};
  }

  Environment rank_environment = environment;
  remove_mpi_variables(rank_environment);
  const JobSpec spec{.job_id = job_id.value(),
                     .mpi_library = mpi.value().mpi_library(),
                     .folder = working_folder,
                     .command = command,
                     .heeds_user_signals = remote.is_srun,
                     .explicit_count = layout.explicit_count,
                     .keeps_snapshots = snapshots != nullptr,
                     .assignments = layout.assignments,
                     .options = options};
  EnvironmentOverrides overrides = remote.environment;
  overrides.emplace(kCoordinatorVariable,
                    text(secret.value(), ' ', listener.value().port, ' ', join(addresses, ',')));
  const std::vector<std::string> remote_environment =
      to_envp(environment_for(remote, rank_environment), overrides);
  const OrphanReaper orphan_reaper;
  JobTimelines timelines(options, spec.assignments);
  const CoordinatorConfig config{
      .options = options,
      .remote = remote,
      .spec = spec,
      .secret = secret.value(),
      .environment = rank_environment,
      .remote_environment = remote_environment,
      .timelines = timelines,
      .snapshots = snapshots,
      .heartbeat_timeout = seconds_in(stripped_value(environment, "TNT_TIMEOUT"), 300s),
      .start_timeout = seconds_in(options.start_timeout.value_or(""), 60s)};
  return Coordinator(config, std::move(listener).value(), signals, orphan_reaper).run();
}

int list_mpis() {
  const Environment environment = current_environment();
  const std::vector<Mpi> found = find_mpis(environment, own_folder());
  std::string lines;
  for (const Mpi& mpi : found) {
    lines += text(mpi.name(), '\t', mpi.mpiexec, '\t', mpi.library, '\t', mpi.where, '\n');
  }
  const Result<Mpi> chosen = choose_mpi(found, stripped_value(environment, "TNT_TRANSPORT"));
  lines += chosen.ok() ? text("use\t", chosen.value().name(), '\t', chosen.value().where, '\n')
                       : text("none\t", printable(chosen.status().message()), '\n');
  return std::fputs(lines.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : kLaunchError;
}

}  // namespace tarantella::launch
