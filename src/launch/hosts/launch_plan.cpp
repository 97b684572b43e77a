#include "launch/hosts/launch_plan.h"

#include <unistd.h>

#include <utility>

#include "launch/cli/job_variables.h"
#include "launch/cli/option_defaults.h"
#include "launch/cli/script.h"
#include "launch/cli/script_command.h"
#include "launch/hosts/srun.h"
#include "launch/system/procfs.h"
#include "timeline/json.h"

namespace tarantella::launch {
namespace {

/// Whether a shell has started this process.
bool is_started_by_shell() {
  std::string parent = read_file(text("/proc/", ::getppid(), "/comm"));
  if (parent.ends_with('\n')) parent.pop_back();
  return is_shell(parent);
}

/// For --this-host: whether another host would have to be asked.
Status check_host(const LaunchPlan& plan) {
  const HostLayout& layout = plan.layout;
  if (!plan.options.this_host || (!plan.through_srun && runs_here(layout, plan.environment))) return {};
  const size_t more = layout.assignments.size() - 1;
  return {Code::kInvalidArgument,
          text("tarantella scaling measures the cores of this machine, but the ranks of ", layout.source,
               " run on ", layout.assignments[0].host, more == 0 ? "" : text(" and ", more, " more"),
               ": start it on a host of the job, with as many ranks as that has")};
}

}  // namespace

Result<LaunchPlan> plan_launch(Options options) {
  LaunchPlan plan{
      .options = std::move(options), .environment = current_environment(), .folder = own_folder()};
  const Options& completed = plan.options;
  TNT_RETURN_IF_ERROR(check_started_once(plan.environment, is_started_by_shell()));
  remove_outer_job_variables(plan.environment);
  apply_option_defaults(plan.options, plan.environment);
  TNT_RETURN_IF_ERROR(check_command(completed.script, completed.arguments));
  if (completed.timeline) TNT_RETURN_IF_ERROR(timeline::check_file(*completed.timeline));
  Result<Command> command =
      command_for(completed.script, completed.arguments, completed.interpreter, plan.folder,
                  value_of(plan.environment, "PATH").value_or(kDefaultPath));
  if (!command.ok()) return command.status();
  plan.command = std::move(command).value();
  plan.gpus = gpus_here(plan.environment);
  Result<HostLayout> layout = host_layout_for(completed, plan.environment, plan.gpus);
  if (!layout.ok()) return layout.status();
  plan.layout = std::move(layout).value();
  const Result<RestartOptions> restarts = restart_options(completed, plan.layout.assignments.size());
  if (!restarts.ok()) return restarts.status();
  plan.restarts = restarts.value();
  plan.through_srun =
      !completed.hostfile && plan.layout.assignments.size() == 1 && is_outside_of_slurm_job(plan.environment);
  TNT_RETURN_IF_ERROR(check_host(plan));
  return plan;
}

}  // namespace tarantella::launch
