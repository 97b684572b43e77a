#include "launch/launch.h"

#include <poll.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "launch/cli/job_variables.h"
#include "launch/cli/versions.h"
#include "launch/cluster/launch_on_hosts.h"
#include "launch/ending/restarts.h"
#include "launch/hosts/launch_plan.h"
#include "launch/hosts/srun.h"
#include "launch/output/timeline_file.h"
#include "launch/output/user_output.h"
#include "launch/ranks/dry_run.h"
#include "launch/ranks/local_job.h"
#include "launch/ranks/rank_environment.h"
#include "launch/ranks/snapshot_memory.h"
#include "launch/system/message.h"
#include "launch/system/poller.h"
#include "launch/system/process.h"
#include "launch/system/signals.h"

namespace tarantella::launch {
namespace {

bool is_dry(const LaunchPlan& plan) { return plan.options.action == Action::kDryRun; }

/// Becomes an srun that runs this command line on the only host of a Slurm job. Returns only if that fails.
Status run_through_srun(const LaunchPlan& plan) {
  const std::string& host = plan.layout.assignments[0].host;
  const Result<Command> command =
      command_through_srun(plan.folder + "/tarantella", plan.options.command_line, host, plan.environment);
  if (!command.ok()) return command.status();
  if (plan.options.shows_information()) {
    print_message(text("INFO: ", plan.layout.source, ": srun starts tarantella on ", host));
  }
  return exec_through_srun(command.value(), plan.layout.tasks, plan.environment);
}

void print_hosts(const LaunchPlan& plan) {
  const HostAssignment& last = plan.layout.assignments.back();
  const std::string batch = describe_batch(plan.options.arguments, last.first_rank + last.ranks);
  std::fputs((describe_hosts(plan.layout) + batch).c_str(), stdout);
}

/// Prints the warnings, what runs where, and which source names the hosts.
void print_placement(const LaunchPlan& plan, const Placement& placement) {
  if (plan.options.shows_warnings()) {
    for (const std::string& warning : placement.warnings) print_message("WARNING: " + warning);
  }
  const HostLayout& layout = plan.layout;
  if (!plan.options.shows_information()) return;
  print_message(text("INFO: ", layout.source.empty() ? "" : layout.source + ": ",
                     placement.ranks == 1 ? "1 rank" : text(placement.ranks, " ranks"), " on ",
                     layout.assignments[0].host, placement.gpus.empty() ? "" : ", each with a GPU"));
}

/// What the LocalJobSpec of a job on this machine alone refers to, which this owns. `plan` must outlive it.
struct LocalJobPlan {
  const LaunchPlan& plan;
  std::string job_id;
  Placement placement =
      place(plan.layout.assignments[0].ranks, plan.layout.explicit_count, plan.options, plan.gpus);
  timeline::Memory timelines = timeline_memory(plan.options, placement.ranks);

  LocalJobSpec spec() const {
    LocalJobSpec spec{.options = plan.options,
                      .command = plan.command,
                      .environment = plan.environment,
                      .placement = placement,
                      .job_marker = job_id,
                      .timelines = timelines,
                      .all_ranks = placement.ranks};
    for (int rank = 0; rank < placement.ranks; ++rank)
      spec.overrides.push_back(
          overrides_for(rank, placement, plan.options, job_id, plan.folder, plan.environment));
    return spec;
  }
};

int print_dry_run(const LaunchPlan& plan) {
  const Result<std::string> job_id = new_job_id();
  if (!job_id.ok()) return print_error(job_id.status(), kLaunchError);
  const LocalJobPlan local{plan, job_id.value()};
  const LocalJobSpec spec = local.spec();
  print_placement(plan, spec.placement);
  const Versions versions = query_versions(spec.command, spec.environment);
  const std::string warning = version_warning(versions);
  if (!warning.empty() && spec.options.shows_warnings()) print_message("WARNING: " + warning);
  std::fputs(describe_placement(spec.placement, spec.command, spec.overrides, versions).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kLaunchError;
}

JobResult launch_here(const LaunchPlan& plan, Signals& signals) {
  const Result<std::string> job_id = new_job_id();
  if (!job_id.ok()) return {.code = print_error(job_id.status(), kLaunchError)};
  const LocalJobPlan local{plan, job_id.value()};
  print_placement(plan, local.placement);
  UserOutput output;
  const Result<JobResult> result = run_local_job(local.spec(), signals, output);
  if (!result.ok()) return {.code = print_error(result.status(), kLaunchError)};
  write_timeline(plan.options, local.timelines, local.placement.ranks);
  return result.value();
}

/// Blocks for this long, or until a signal asks for an end: returns its number, or 0.
int pause(Duration length, Signals& signals) {
  for (const Deadline end = Deadline::after(length); !end.passed();) {
    while (const auto event = signals.next()) {
      const int number = event->number;
      if (number == SIGTSTP) suspend_until_resumed();
      if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) return number;
    }
    Poller poller;
    poller.add(signals.fd(), POLLIN);
    poller.wait(end.left_ms());
  }
  return 0;
}

}  // namespace

int launch(Options options) {
  Result<LaunchPlan> planned = plan_launch(std::move(options));
  if (!planned.ok()) return print_error(planned.status(), kCannotRun);
  LaunchPlan& plan = planned.value();
  if (plan.through_srun) return print_error(run_through_srun(plan), kCannotRun);
  plan.environment.erase(kTasksVariable);
  if (is_dry(plan)) print_hosts(plan);
  if (is_dry(plan) && runs_here(plan.layout, plan.environment)) return print_dry_run(plan);
  Result<Signals> signals = Signals::open();  // before any file of ours meets a limit
  if (!signals.ok()) return print_error(cannot_start("the job", signals.status()), kLaunchError);
  Result<SnapshotMemory> snapshots =
      plan.restarts.max_restarts > 0 ? SnapshotMemory::make() : SnapshotMemory();
  if (!snapshots.ok()) return print_error(cannot_start("the job", snapshots.status()), kLaunchError);
  Restarts restarts(plan.restarts, plan.layout.assignments.size());
  for (;;) {
    const bool is_here = runs_here(plan.layout, plan.environment);
    plan.environment.erase(SnapshotMemory::kVariable);
    if (plan.restarts.max_restarts > 0) {
      plan.environment["TNT_MAX_RESTARTS"] = std::to_string(plan.restarts.max_restarts);
      plan.environment[kRestartCount] = std::to_string(restarts.count());
      if (is_here) plan.environment[SnapshotMemory::kVariable] = snapshots.value().descriptors();
    }
    const JobResult result =
        is_here ? launch_here(plan, signals.value())
                : launch_on_hosts(plan, signals.value(),
                                  plan.restarts.max_restarts > 0 ? &snapshots.value() : nullptr);
    const Restarts::Decision next = restarts.after(result, Clock::now());
    if (!next.line.empty()) print_message(next.line);
    if (!next.restart && result.signal != 0) die_by_signal(result.signal);
    if (!next.restart) return result.code;
    if (const int number = pause(next.pause, signals.value()); number != 0) {
      std::fputs(interrupted(number).message.c_str(), stderr);
      die_by_signal(number);
    }
    plan.layout.assignments = assignments_without(plan.layout.assignments, next.dropped);
  }
}

}  // namespace tarantella::launch
